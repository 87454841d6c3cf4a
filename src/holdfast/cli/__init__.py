"""The command line: for people, one file a verb. Importing this brings in click and nothing heavy."""

from __future__ import annotations

from holdfast.cli.group import cli, main

__all__ = ["cli", "main"]
