"""Which versions do not fit together: Spark and its Java, Python, connectors and libraries. A judgement, no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from holdfast.decide.spark_versions import Version, parse_version
from holdfast.errors import BadValue

__all__ = ["Machine", "Misfit", "Requirement", "is_within", "least_java", "misfits", "parse_requirement"]

Severity: TypeAlias = Literal["warning", "failed"]

SPARK_4 = (4, 0)
JAVA_OF_3_5 = (8, 17)
PYTHON_OF_3_5 = (3, 11)
PANDAS_3 = (3, 0)
FIRST_WITH_PANDAS_3 = (4, 4)
CONNECTORS = {
    "spark-sql-kafka-0-10": "Kafka",
    "spark-avro": "Avro",
    "spark-protobuf": "Protobuf",
    "delta-spark": "Delta",
    "iceberg-spark-runtime": "Iceberg",
}
JAR = re.compile(
    rf"(?P<name>{'|'.join(CONNECTORS)})(?:-(?P<spark>\d+\.\d+))?_(?P<scala>\d+\.\d+)-(?P<version>\d+\.\d+[^/]*)\.jar"
)
REQUIREMENT = re.compile(
    r"(?P<package>[A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?P<within>[^;]*?)\s*(?:;\s*extra == ['\"](?P<extra>\w+)['\"])?"
)
SCALA = re.compile(r"scala-library-(\d+\.\d+)\.[^/]*\.jar")


class Requirement(NamedTuple):
    """A package that an extra of Holdfast needs, within a range such as `>=1.6.4,<2`."""

    package: str
    within: str
    extra: str = ""


class Misfit(NamedTuple):
    """Two things that do not go together, and what to do about it."""

    what: str
    severity: Severity
    found: str
    advice: str


@dataclass(frozen=True)
class Machine:
    """The versions on a machine, as texts; what is not there is not in them."""

    python: str
    packages: Mapping[str, str]
    java: int | None = None
    spark_home: str | None = None
    """The version of the Spark in SPARK_HOME, if that is set."""
    jars: Sequence[str] = ()
    requirements: Sequence[Requirement] = field(default=())

    @property
    def spark(self) -> Version | None:
        return _version(self.packages.get("pyspark", ""))


def least_java(spark: Version | None) -> int:
    """The oldest Java that a Spark runs on."""
    return 8 if spark is not None and spark < SPARK_4 else 17


def misfits(machine: Machine) -> list[Misfit]:
    """All that does not fit together."""
    return [*_ranges(machine), *_around_spark(machine), *_jars(machine)]


def _ranges(machine: Machine) -> Iterator[Misfit]:
    seen: set[str] = set()
    for package, within, extra in machine.requirements:
        version = machine.packages.get(package)
        if version is None or package in seen or is_within(version, within):
            continue
        seen.add(package)
        wanted = f"holdfast[{extra}]" if extra else "holdfast"
        yield Misfit(package, "failed", f"{version}, and {wanted} needs {within}", f"pip install '{package}{within}'")


def _around_spark(machine: Machine) -> Iterator[Misfit]:
    spark = machine.spark
    if spark is None:
        return
    shown = ".".join(map(str, spark))
    if spark < SPARK_4 and machine.java is not None and machine.java > JAVA_OF_3_5[1]:
        advice = "Set JAVA_HOME to a Java 17, or take Spark 4."
        yield Misfit("java and pyspark", "warning", f"Spark {shown} is made for Java 8, 11 and 17", advice)
    python = _version(machine.python)
    if spark < SPARK_4 and python is not None and python > PYTHON_OF_3_5:
        found = f"Spark {shown} is made for Python 3.8 to 3.11, and this is {machine.python}"
        yield Misfit("python and pyspark", "warning", found, "Take Python 3.11, or Spark 4.")
    pandas = _version(machine.packages.get("pandas", ""))
    if pandas is not None and pandas >= PANDAS_3 and spark < FIRST_WITH_PANDAS_3:
        found = f"Spark {shown} does not fully support pandas {machine.packages['pandas']}"
        yield Misfit("pandas and pyspark", "warning", found, "pip install 'pandas<3'")
    home = _version(machine.spark_home or "")
    if home is not None and home != spark:
        found = f"pyspark is {machine.packages['pyspark']}, and SPARK_HOME has Spark {machine.spark_home}"
        advice = "Unset SPARK_HOME, or install the pyspark of that version: the two talk to each other."
        yield Misfit("SPARK_HOME and pyspark", "failed", found, advice)


def _jars(machine: Machine) -> Iterator[Misfit]:
    spark = machine.spark
    scala = next((match[1] for jar in machine.jars if (match := SCALA.fullmatch(jar))), None)
    for jar in machine.jars if spark is not None else ():
        match = JAR.fullmatch(jar)
        if match is None:
            continue
        why = _jar_misfit(match, spark or SPARK_4, scala)
        if why:
            name = CONNECTORS[match["name"]]
            advice = "Take the connector that was built for this Spark; `spark.jars.packages` fetches it by version."
            yield Misfit(f"{name} connector and pyspark", "failed", f"{jar}: {why}", advice)


def _jar_misfit(jar: re.Match[str], spark: Version, scala: str | None) -> str | None:
    shown = ".".join(map(str, spark))
    if scala is not None and jar["scala"] != scala:
        return f"it is for Scala {jar['scala']}, and this Spark has Scala {scala}"
    version = _version(jar["version"])
    if jar["name"] == "iceberg-spark-runtime":
        return None if _version(jar["spark"] or "") in (spark, None) else f"it is for Spark {jar['spark']}, not {shown}"
    if jar["name"] == "delta-spark":
        same = version is not None and (version[0] == spark[0])
        return None if same else f"Delta {jar['version']} is for another Spark than {shown}"
    return None if version == spark else f"it belongs to Spark {jar['version']}, and this is {shown}"


def parse_requirement(text: str) -> Requirement | None:
    """A line such as `pyarrow<28,>=17; extra == 'arrow'`, as a package tells of itself; None if it is another kind."""
    found = REQUIREMENT.fullmatch(text.strip())
    if found is None:
        return None
    parts = sorted(part.strip() for part in found["within"].split(",") if part.strip())
    return Requirement(found["package"], ",".join(reversed(parts)), found["extra"] or "")


def is_within(version: str, within: str) -> bool:
    """Whether a version lies in a range of >= and <; what is not understood is held to be fine."""
    at = _numbers(version)
    for part in within.split(","):
        sign, limit = re.match(r"(>=|<|)(.*)", part.strip(), re.DOTALL).groups()  # type: ignore[union-attr]
        if (sign == ">=" and at < _numbers(limit)) or (sign == "<" and at >= _numbers(limit)):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with, without zeros at the end: 1.10 is 1.10.0."""
    found = re.match(r"\d+(?:\.\d+)*", version.strip())
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _version(text: str) -> Version | None:
    try:
        return parse_version(text)
    except BadValue:
        return None
