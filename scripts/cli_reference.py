"""Write the generated part of docs/reference/cli.md from the commands themselves.

python scripts/cli_reference.py           writes the file
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from holdfast.cli import cli
from holdfast.cli.common import Verb

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
MARK = "<!-- All below is written by scripts/cli_reference.py. -->\n"


def page(text: str) -> str:
    """The page with its generated part made anew; what stands before the mark is left alone."""
    before, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError(f"{PAGE.name} has lost its mark: {MARK.strip()}")
    with click.Context(cli, info_name="holdfast", **cli.context_settings) as root:
        verbs = (cli.get_command(root, name) for name in cli.list_commands(root))
        sections = [section for verb in verbs if isinstance(verb, Verb) for section in _sections(root, verb)]
    return before + mark + "".join(sections)


def _sections(above: click.Context, verb: Verb) -> list[str]:
    """The section of a verb and, of a group, those of the verbs in it."""
    found = [_section(above, verb)]
    if isinstance(verb, click.Group):
        with click.Context(verb, info_name=verb.name, parent=above) as ctx:
            inner = [verb.get_command(ctx, name) for name in verb.list_commands(ctx)]
            found += [section for each in inner if isinstance(each, Verb) for section in _sections(ctx, each)]
    return found


def _section(above: click.Context, verb: Verb) -> str:
    with click.Context(verb, info_name=verb.name, parent=above) as ctx:
        usage = " ".join([ctx.command_path, *verb.collect_usage_pieces(ctx)])
        params = [param for param in verb.get_params(ctx) if isinstance(param, click.Option)]
        options = [record for param in params if (record := param.get_help_record(ctx))]
    described = re.sub(r"(?<!\n)\n(?!\n)", " ", verb.help or "")
    lines = [f"\n## {ctx.command_path}", "", f"`{usage}`", "", described, "", "```bash", *verb.examples, "```", ""]
    lines += ["| option | |", "|-|-|"]
    lines += [f"| `{_cell(names)}` | {_cell(text)} |" for names, text in options]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
