"""What a person types, and what comes back."""

from typer.testing import CliRunner, Result

from tacit.cli import app


def tacit(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result
