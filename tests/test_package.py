"""What users get: a wheel that stands alone, and imports that stay light."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"cryptography", "pyspark", "obstore", "numpy", "pyarrow", "pandas", "polars", "rich"}


def run(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_room_but_the_store_and_its_test_kit_is_kept_from_obstore() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    [contract] = [
        each for each in tools["importlinter"]["contracts"] if each["name"] == "Only the store talks to obstore"
    ]
    rooms = {f"holdfast.{module.name}" for module in pkgutil.iter_modules(holdfast.__path__) if module.name[0] != "_"}
    assert set(contract["source_modules"]) == rooms - {"holdfast.store", "holdfast.testing"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment that holds the wheel and what it asks for, and nothing else."""
    place = tmp_path_factory.mktemp("clean") / "venv"
    run(sys.executable, "-m", "venv", place)
    run(place / "bin" / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel)
    return place / "bin"


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    files = (path for path in (source / "holdfast").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert inside == {path.relative_to(source).as_posix() for path in files}


def test_the_wheel_says_that_it_is_typed_and_carries_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "holdfast/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_installed_wheel_answers_for_help(clean_bin: Path) -> None:
    assert "Usage: holdfast" in run(clean_bin / "holdfast", "--help")


def test_the_installed_wheel_tells_its_version(clean_bin: Path) -> None:
    assert holdfast.__version__ in run(clean_bin / "holdfast", "--version")


@pytest.mark.parametrize("module", ["holdfast", "holdfast.cli"])
def test_importing_pulls_in_nothing_heavy(module: str) -> None:
    loaded = run(sys.executable, "-c", f"import sys, {module}; print(*sys.modules)").split()
    assert module in loaded
    assert HEAVY.isdisjoint(loaded)
