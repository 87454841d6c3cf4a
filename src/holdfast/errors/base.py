"""What every error has."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

__all__ = [
    "HoldfastError",
]


@dataclass(eq=False)
class HoldfastError(Exception):
    """What all of them share: `message` and `hint` are filled from the fields, `code` never changes."""

    code: ClassVar[str] = "HF-0000"
    exit_code: ClassVar[int] = 1
    template: ClassVar[str] = "Holdfast failed"
    advice: ClassVar[str] = ""

    @property
    def fields(self) -> dict[str, object]:
        """What it is about, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def message(self) -> str:
        """What went wrong, in a sentence."""
        return self.template.format(**{name: _worded(value) for name, value in self.fields.items()})

    @property
    def hint(self) -> str:
        """What to do about it."""
        return self.advice.format(**self.fields)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions made with keywords have empty args; without this they can't cross a process boundary.
        return type(self), tuple(self.fields.values())


def _worded(value: object) -> object:
    """Lists read as people write them; anything else formats itself."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return value
