"""The reference pages say what the code has."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import holdfast
import holdfast.config

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
TABLES = set(holdfast.config.__all__) - {"Duration", "read_config", "read_repository"}


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


def test_the_page_of_the_api_is_what_signatures_and_docstrings_say() -> None:
    text = (REFERENCE / "api.md").read_text(encoding="utf-8")
    assert script("api_reference").page(text) == text, "run scripts/api_reference.py"


def test_the_page_of_the_config_is_what_the_tables_say() -> None:
    text = (REFERENCE / "config.md").read_text(encoding="utf-8")
    assert script("config_reference").page(text) == text, "run scripts/config_reference.py"


def test_every_table_of_the_config_has_its_section() -> None:
    tables = {kind for kind in vars(holdfast.config).values() if isinstance(kind, type) and kind.__name__ in TABLES}
    assert set(script("config_reference").TABLES.values()) == tables


def test_every_public_name_has_its_place_and_every_member_says_what_it_is() -> None:
    text = (REFERENCE / "api.md").read_text(encoding="utf-8")
    titles = set(re.findall(r"^### (\w+)$", text, re.MULTILINE))
    assert set(holdfast.__all__) - {"__version__"} == titles
    assert [line for line in text.splitlines() if line.endswith("|  |")] == []


def test_a_default_that_differs_from_run_to_run_is_not_spelled_out() -> None:
    assert " at 0x" not in (REFERENCE / "api.md").read_text(encoding="utf-8")


def test_every_name_is_loaded_from_where_it_lives() -> None:
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
