"""Every command is documented, has examples, and loads nothing before it is called."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

from cli.sample_repository import invoke
from holdfast.cli import cli
from holdfast.cli.common import Verb
from holdfast.cli.group import VERBS

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "cli.md"


def verb(name: str) -> Verb:
    """A verb by its name; one of a group by both, such as `state diff`."""
    found: click.Command | None = cli
    for word in name.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word)
    assert isinstance(found, Verb)
    return found


def verbs() -> list[str]:
    inner = [f"{name} {below}" for name in VERBS for below in getattr(verb(name), "commands", ())]
    return [*VERBS, *inner]


def reference_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cli_reference", ROOT / "scripts" / "cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_what_the_commands_say() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert reference_script().page(text) == text, "run scripts/cli_reference.py"


@pytest.mark.parametrize("name", verbs())
def test_every_command_and_option_stands_in_the_reference(name: str) -> None:
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"\n## holdfast {name}\n")
    section = section.partition("\n## ")[0]
    assert section
    for param in verb(name).params:
        for option in param.opts if isinstance(param, click.Option) else ():
            assert option in section


@pytest.mark.parametrize("name", verbs())
def test_help_has_a_description_and_examples_that_parse(name: str) -> None:
    shown = invoke(*name.split(), "--help").out
    assert "Examples:" in shown
    assert len(verb(name).get_short_help_str(200)) > 20
    for example in verb(name).examples:
        program, *words = shlex.split(example.partition(" > ")[0])
        called = called_by(words)
        assert (program, called.partition(name)[0]) == ("holdfast", "")
        options = {word.partition("=")[0] for word in words if word.startswith("-")}
        known = {option for param in verb(called).params for option in param.opts}
        assert options <= known


def called_by(words: list[str]) -> str:
    """The verb that these words call: that of a group may be left out where it has a default."""
    found, name = verb(words[0]), words[0]
    if isinstance(found, click.Group):
        name += f" {words[1] if words[1] in found.commands else 'show'}"
    return name


def test_every_verb_has_a_file_and_every_file_of_a_verb_is_listed() -> None:
    shared = {
        "__init__",
        "activating",
        "common",
        "demo_show",
        "ends",
        "failures",
        "group",
        "loading",
        "told",
        "render",
        "showing",
        "sidecar",
    }
    files = {path.stem for path in (ROOT / "src" / "holdfast" / "cli").glob("*.py")} - shared
    assert files == set(VERBS)


def loaded_by(*words: str) -> set[str]:
    code = "import sys, holdfast.cli as c\ntry: c.main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_imports_neither_commands_nor_anything_heavy() -> None:
    loaded = loaded_by("--help")
    assert {"click", "holdfast.cli.group"} <= loaded
    assert loaded.isdisjoint({"obstore", "rich", "msgspec", "holdfast.errors", "holdfast.handles"})
    assert not [name for name in loaded if re.fullmatch(rf"holdfast\.cli\.({'|'.join(VERBS)}|common)", name)]


def test_help_of_a_command_imports_only_that_command() -> None:
    loaded = loaded_by("prune", "--help")
    assert "holdfast.cli.prune" in loaded
    assert loaded.isdisjoint({"obstore", "rich", "msgspec", "holdfast.handles", "holdfast.cli.copy"})


def test_a_plain_listing_of_a_local_repository_needs_neither_rich_nor_obstore(tmp_path: Path) -> None:
    invoke("init", str(tmp_path / "new"))
    assert loaded_by("list", "--repo", str(tmp_path / "new")).isdisjoint({"obstore", "rich"})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell: str) -> None:
    answer = invoke("completion", shell)
    assert answer.code == 0
    assert "_HOLDFAST_COMPLETE" in answer.out
    assert invoke("completion", shell, "--json").document["script"].strip() == answer.out.strip()


def complete(words: str) -> list[str]:
    holdfast = Path(sys.executable).with_name("holdfast")
    given = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run([holdfast], env=given, capture_output=True, text=True, check=True)
    return [line.partition(",")[2] for line in done.stdout.split()]


def test_verbs_and_options_are_completed() -> None:
    assert complete("holdfast s") == ["show", "state", "savepoint", "standby"]
    assert complete("holdfast prune --keep-") == [
        "--keep-last",
        "--keep-hourly",
        "--keep-daily",
        "--keep-weekly",
        "--keep-monthly",
        "--keep-within",
    ]


def test_python_m_holdfast_is_the_same_program() -> None:
    done = subprocess.run([sys.executable, "-m", "holdfast", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("holdfast, version")
