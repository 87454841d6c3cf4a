"""Python, Java, Spark, connectors and libraries: which are here, and whether they fit together.

Nothing is imported to find out: a broken package must not break the doctor.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from holdfast._version import __version__
from holdfast.decide.fitting import Machine, Requirement, least_java, misfits, parse_requirement
from holdfast.doctor.result import Result
from holdfast.errors import JavaMissing
from holdfast.report.plain import iso_time
from holdfast.spark.java import Java, find_java

__all__ = ["examine_machine"]

OPTIONAL = ("pyspark", "cryptography", "pyarrow", "numpy", "pandas", "polars")
SINKS = {
    "delta": "deltalake",
    "iceberg": "pyiceberg",
    "postgres": "adbc-driver-postgresql",
    "duckdb": "duckdb",
    "kafka": "confluent-kafka",
}
"""The connectors in Python, by their extra, with the package that stands for each."""
JVM_CONNECTORS = re.compile(r"(spark-sql-kafka|delta-spark|iceberg-spark-runtime|spark-avro|spark-protobuf).*\.jar")
RELEASED = 1_767_225_600
"""No clock that is right shows a time before 2026."""


def examine_machine() -> Iterator[Result]:
    """All that this machine brings along."""
    requirements = _requirements()
    packages = {name: found for name in {r.package for r in requirements} | {*OPTIONAL} if (found := _installed(name))}
    java = _java(packages.get("pyspark"))
    machine = Machine(
        python=platform.python_version(),
        packages=packages,
        java=java.version if isinstance(java, Java) else None,
        spark_home=_spark_home(),
        jars=_jars(),
        requirements=requirements,
    )
    yield Result("python", "ok", f"{machine.python} ({sys.executable})")
    yield Result("holdfast", "ok", __version__)
    yield from _needed(machine)
    yield from _shown_java(java, "pyspark" in packages)
    for name in OPTIONAL:
        version = packages.get(name)
        yield Result(name, "ok", version) if version else Result(name, "none", "not installed (optional)")
    if os.environ.get("SPARK_HOME") and machine.spark_home is None:
        advice = "Unset SPARK_HOME: pyspark brings a Spark of its own."
        yield Result("SPARK_HOME", "failed", f"there is no Spark in {os.environ['SPARK_HOME']}", advice)
    yield from _connectors(machine)
    for what, severity, found, advice in misfits(machine):
        yield Result(what, severity, found, advice)
    yield _clock()


def _requirements() -> list[Requirement]:
    try:
        lines = metadata.requires("holdfast") or []
    except metadata.PackageNotFoundError:
        return []
    return [parsed for line in lines if (parsed := parse_requirement(line))]


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _needed(machine: Machine) -> Iterator[Result]:
    for package in sorted({r.package for r in machine.requirements if not r.extra}):
        if package in machine.packages:
            yield Result(package, "ok", machine.packages[package])
        else:
            yield Result(package, "failed", "not installed", f"pip install {package}")


def _java(pyspark: str | None) -> Java | JavaMissing:
    machine = Machine(python="", packages={"pyspark": pyspark or ""})
    try:
        return find_java(least_java(machine.spark))
    except JavaMissing as error:
        return error


def _shown_java(java: Java | JavaMissing, is_needed: bool) -> Iterator[Result]:
    if isinstance(java, Java):
        yield Result("java", "ok", f"{java.version} ({java.origin}: {java.home})")
    elif is_needed:
        yield Result("java", "failed", java.message, java.hint)
    else:
        yield Result("java", "none", "not found (only Spark needs it)")


def _spark_home() -> str | None:
    home = os.environ.get("SPARK_HOME")
    if not home:
        return None
    jars = [path.name for path in Path(home, "jars").glob("spark-core_*.jar")]
    found = re.fullmatch(r"spark-core_[\d.]+-(.+)\.jar", jars[0]) if jars else None
    return found[1] if found else None


def _jars() -> list[str]:
    """The jars of the Spark that would be started."""
    if home := os.environ.get("SPARK_HOME"):
        return sorted(path.name for path in Path(home, "jars").glob("*.jar"))
    spec = find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    return sorted(path.name for place in places or () for path in Path(place, "jars").glob("*.jar"))


def _connectors(machine: Machine) -> Iterator[Result]:
    for extra, package in SINKS.items():
        version = machine.packages.get(package)
        if version:
            yield Result(f"sink {extra}", "ok", f"{package} {version}")
        else:
            yield Result(f"sink {extra}", "none", f"not installed (optional): pip install 'holdfast[{extra}]'")
    jars = [jar for jar in machine.jars if JVM_CONNECTORS.fullmatch(jar)]
    if jars:
        yield Result("connectors of Spark", "ok", ", ".join(jars))
    elif machine.spark is not None:
        where = "none among its jars (`spark.jars.packages` can bring them at run time)"
        yield Result("connectors of Spark", "none", where)


def _clock() -> Result:
    now = time.time()
    found = iso_time(int(now * 1000)) or str(now)
    if now < RELEASED:
        return Result(
            "clock", "warning", found, "The clock is behind. Nothing is ordered by it, but signed requests fail."
        )
    return Result("clock", "ok", found)
