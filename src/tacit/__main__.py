"""Runs the command `tacit`, also as `python -m tacit`."""

import sys


def main() -> None:
    """Runs the command line. Ctrl-C while it is still being imported prints one line, as it does later."""
    try:
        from tacit.cli import app

        app(prog_name="tacit")
    except KeyboardInterrupt:
        from tacit.charge_flag import INTERRUPTED, interrupted_message

        print(interrupted_message(), file=sys.stderr)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
