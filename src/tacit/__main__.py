"""`python -m tacit` is the command `tacit`. Ctrl-C while it is loaded is one line, as it is later."""

import sys


def main() -> None:
    """Run the command."""
    try:
        from tacit.cli import app

        app(prog_name="tacit")
    except KeyboardInterrupt:
        from tacit.commands._stopped import STOPPED, sentence

        print(sentence(), file=sys.stderr)
        sys.exit(STOPPED)


if __name__ == "__main__":
    main()
