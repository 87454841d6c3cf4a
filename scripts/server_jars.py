"""Fetch the jars of `server_jars.xml` into `.servers/<set>/lib`, by the Ivy that PySpark carries.

Ivy knows the public registry by itself, and Java is found as Holdfast finds it: the machine needs no Maven.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark

from holdfast.spark.java import find_java

__all__ = ["install"]

WANTED = Path(__file__).with_suffix(".xml")


def install(servers: Path) -> None:
    """Bring in each set that is not there, all at once: most of the time goes into waiting for small files."""
    names = [conf.attrib["name"] for conf in ElementTree.parse(WANTED).iter("conf")]
    missing = [name for name in names if not _installed(servers / name)]
    print(*(f"the jars of {name} are in {servers / name}\n" for name in names if name not in missing), sep="", end="")
    if missing:
        print(f"fetching the jars of {', '.join(missing)} (about a minute)", flush=True)
        with ThreadPoolExecutor(len(missing)) as threads:
            for line in threads.map(lambda name: _fetch(servers / name), missing):
                print(line, flush=True)


def _installed(folder: Path) -> bool:
    mark = folder / "complete"
    return mark.is_file() and mark.read_text() == _digest(folder.name)


def _digest(name: str) -> str:
    """What the file says of one set; it changes when a version does."""
    about = [line for line in ElementTree.parse(WANTED).iter() if line.get("conf", "").partition("->")[0] == name]
    return hashlib.sha256(b"".join(map(ElementTree.tostring, about))).hexdigest()


def _fetch(folder: Path) -> str:
    begun = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    ivy_home = folder / "ivy"
    ivy_home.mkdir(parents=True)
    [ivy] = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    # Its own home: whatever lies in the user's must not end up in the tests.
    command = [find_java().home / "bin" / "java", "-Xmx256m", f"-Divy.default.ivy.user.dir={ivy_home}", "-jar", ivy]
    command += ["-cache", ivy_home / "cache", "-ivy", WANTED, "-confs", folder.name]
    command += ["-retrieve", f"{folder}/lib/[artifact]-[revision](-[classifier]).[ext]"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    jars = [*folder.glob("lib/*.jar")]
    if done.returncode or not jars:
        raise SystemExit(f"{done.stdout[-4000:]}\nthe jars of {folder.name} could not be fetched")
    shutil.rmtree(ivy_home)
    (folder / "complete").write_text(_digest(folder.name))
    size = sum(jar.stat().st_size for jar in jars) / 1e6
    return f"{folder.name}: {len(jars)} jars, {size:.0f} MB, in {time.monotonic() - begun:.0f} s"
