"""Write the generated part of docs/reference/errors.md from the errors themselves.

python scripts/errors_reference.py        writes the file
"""

from __future__ import annotations

import re
from pathlib import Path

from holdfast import errors
from holdfast.errors import HoldfastError

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "errors.md"
MARK = "<!-- All below is written by scripts/errors_reference.py. -->\n"


def page(text: str) -> str:
    """The page with its generated part made anew; what stands before the mark is left alone."""
    before, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError(f"{PAGE.name} has lost its mark: {MARK.strip()}")
    every: list[type[HoldfastError]] = [getattr(errors, name) for name in errors.__all__]
    coded = sorted((e for e in every if "code" in vars(e) and e is not HoldfastError), key=lambda e: e.code)
    return before + mark + "".join(_section(error) for error in coded)


def _section(error: type[HoldfastError]) -> str:
    lines = [f"\n## {error.code} {error.__name__}", ""]
    lines += [f"{_parents(error)}; exit code {error.exit_code}.", "", f"> {_readable(error.template)}"]
    lines += ["", _readable(error.advice)] if error.advice else []
    return "\n".join(lines) + "\n"


def _parents(error: type[HoldfastError]) -> str:
    parents = [base for base in error.__mro__[1:] if issubclass(base, HoldfastError)]
    parents = parents[:-1] or parents
    return "A " + ", a ".join(f"`{base.__name__}`" for base in parents)


def _readable(template: str) -> str:
    """A template with its fields as people write them: *field*."""
    return re.sub(r"\{(\w+)[^}]*\}", r"*\1*", template)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
