"""Small HTML for notebooks: what `_repr_html_` of repositories, pipelines and checkpoints is made of."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from holdfast.text import clean

__all__ = ["facts", "table"]


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], remark: str = "") -> str:
    """A table whose every text is data: it is escaped, whatever it holds."""
    heads = "".join(f"<th>{_text(column)}</th>" for column in columns)
    lines = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    after = f"<p><small>{_text(remark)}</small></p>" if remark else ""
    head = f"<caption>{_text(caption)}</caption><thead><tr>{heads}</tr></thead>"
    return f"<table>{head}<tbody>{lines}</tbody></table>{after}"


def facts(caption: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values below each other."""
    lines = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in pairs)
    return f"<table><caption>{_text(caption)}</caption><tbody>{lines}</tbody></table>"


def _text(text: str) -> str:
    return escape(clean(text))
