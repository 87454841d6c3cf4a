"""Repositories for the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.sample_repository import make_orders
from holdfast import Repository


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_REPO", "HOLDFAST_CONFIG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """The sample repository on disk, which HOLDFAST_REPO names."""
    monkeypatch.setenv("HOLDFAST_REPO", str(tmp_path / "repository"))
    return make_orders(str(tmp_path / "repository"))
