"""The reference pages say what the code has."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import holdfast
import holdfast.config

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
TABLES = set(holdfast.config.__all__) - {"Duration", "read_config", "read_repository"}
WORDS = {
    word
    for code in re.findall(r"`([^`\n]+)`", (REFERENCE / "api.md").read_text(encoding="utf-8"))
    for word in re.findall(r"^\w+", code)
}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_errors_is_what_the_errors_say() -> None:
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert script("errors_reference").page(text) == text, "run scripts/errors_reference.py"


def test_the_page_of_the_config_is_what_the_tables_say() -> None:
    text = (REFERENCE / "config.md").read_text(encoding="utf-8")
    assert script("config_reference").page(text) == text, "run scripts/config_reference.py"


def test_every_table_of_the_config_has_its_section() -> None:
    tables = {kind for kind in vars(holdfast.config).values() if isinstance(kind, type) and kind.__name__ in TABLES}
    assert set(script("config_reference").TABLES.values()) == tables


def test_every_public_name_stands_in_the_reference() -> None:
    assert set(holdfast.__all__) <= WORDS


@pytest.mark.parametrize(
    "kind",
    [
        holdfast.Attached,
        holdfast.Repository,
        holdfast.StoredPipeline,
        holdfast.Checkpoint,
        holdfast.Checkpointer,
        holdfast.CheckpointManager,
        holdfast.Pipeline,
        holdfast.Run,
    ],
)
def test_every_public_call_of_the_main_classes_stands_in_the_reference(kind: type) -> None:
    assert {name for name in vars(kind) if not name.startswith("_")} <= WORDS


def test_every_name_is_loaded_from_where_it_lives() -> None:
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
