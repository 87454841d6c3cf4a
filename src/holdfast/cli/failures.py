"""How a command that failed ends: one readable block on stderr or one JSON document, and the exit code of its kind."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from holdfast.cli.render import show_block
from holdfast.errors import HoldfastError

__all__ = ["show_failure"]

USAGE_CODE, UNEXPECTED_CODE = "HF-6000", "HF-0000"


def show_failure(error: Exception, words: Sequence[str]) -> int:
    """Show a failure as the words of the command line ask, and give the exit code."""
    options = words[: words.index("--")] if "--" in words else words
    if "--debug" in options:
        sys.stderr.write("".join(traceback.format_exception(error)))
    told = _tell(error)
    if "--json" in options:
        from holdfast.report.plain import to_json

        click.echo(to_json({"error": told}))
    elif isinstance(error, click.ClickException):
        error.show()
    else:
        show_block(told["message"], told["code"], told["hint"])
    if isinstance(error, HoldfastError | click.ClickException):
        return error.exit_code
    return 1


def _tell(error: Exception) -> dict[str, Any]:
    if isinstance(error, HoldfastError):
        return {"code": error.code, "message": error.message, "hint": error.hint, "fields": error.fields}
    if isinstance(error, click.ClickException):
        ctx = error.ctx if isinstance(error, click.UsageError) else None
        hint = f"See `{ctx.command_path} --help`." if ctx else ""
        return {"code": USAGE_CODE, "message": error.format_message(), "hint": hint, "fields": {}}
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return {"code": UNEXPECTED_CODE, "message": f"{where}{error.strerror or error}", "hint": "", "fields": {}}
    return {
        "code": UNEXPECTED_CODE,
        "message": f"unexpected {type(error).__name__}: {error}",
        "hint": "This is a mistake in Holdfast. Run it again with --debug and report what it prints.",
        "fields": {},
    }
