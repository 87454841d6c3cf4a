"""The folder that copies of state are laid down in."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from holdfast.state.scratch import scratch_folder


def test_it_is_its_owners_alone_and_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "rows").touch()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_holds_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = tmp_path / f".holdfast-state-{os.getuid()}.{'0' * 32}.partial"
    dead.mkdir()
    (dead / "rows").touch()
    with scratch_folder() as one, scratch_folder() as other:
        assert {path.name for path in tmp_path.iterdir()} == {one.name, other.name}
    assert list(tmp_path.iterdir()) == []
