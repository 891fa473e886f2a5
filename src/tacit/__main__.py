"""`python -m tacit` is the command `tacit`."""

from tacit.cli import app

app(prog_name="tacit")
