"""How long `holdfast --help` takes against the least that a click program could take: Python importing click.

python -m benchmarks.startup [--rounds N]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.pairs import alternate, print_table


def main() -> None:
    options = argparse.ArgumentParser(description="holdfast --help against importing click")
    options.add_argument("--rounds", type=int, default=21)
    rounds = options.parse_args().rounds

    holdfast = Path(sys.executable).with_name("holdfast")

    def show_help() -> None:
        subprocess.run([holdfast, "--help"], check=True, stdout=subprocess.DEVNULL)

    def import_click() -> None:
        subprocess.run([sys.executable, "-c", "import click"], check=True, stdout=subprocess.DEVNULL)

    found = alternate(show_help, import_click, rounds)
    # Only wall time: the CPU time of a child does not count as this process's own.
    print_table(
        f"start-up, {found.rounds} pairs; time over time, median (quartiles)",
        ("", "against", "wall"),
        [("holdfast --help", 'python -c "import click"', found.wall)],
    )


if __name__ == "__main__":
    main()
