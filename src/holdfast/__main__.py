"""`python -m holdfast` is the command line."""

from __future__ import annotations

from holdfast.cli import main

__all__: list[str] = []

main()
