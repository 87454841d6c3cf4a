"""Which versions do not fit together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.decide.fitting import Machine, Requirement, is_within, least_java, misfits, parse_requirement

GOOD = Machine(
    python="3.12.1",
    packages={"pyspark": "4.3.0", "pandas": "2.3.3", "deltalake": "1.6.6"},
    java=17,
    spark_home="4.3.1",
    jars=[
        "scala-library-2.13.18.jar",
        "spark-sql-kafka-0-10_2.13-4.3.0.jar",
        "delta-spark_2.13-4.1.0.jar",
        "iceberg-spark-runtime-4.3_2.13-1.11.0.jar",
        "avro-1.12.1.jar",
    ],
    requirements=[Requirement("deltalake", ">=1.6.4,<2", "delta"), Requirement("duckdb", ">=1.4,<3", "duckdb")],
)


def packages(**versions: str) -> Machine:
    return replace(GOOD, packages={**GOOD.packages, **versions})


def jar(name: str) -> Machine:
    return replace(GOOD, jars=["scala-library-2.13.18.jar", name])


def test_what_fits_together_is_not_mentioned() -> None:
    assert misfits(GOOD) == []
    assert misfits(replace(GOOD, packages={}, java=None, spark_home=None)) == []


@pytest.mark.parametrize(
    ("machine", "what", "severity", "said"),
    [
        (packages(deltalake="1.5.0"), "deltalake", "failed", "holdfast[delta] needs >=1.6.4,<2"),
        (packages(deltalake="2.0.0"), "deltalake", "failed", "2.0.0, and"),
        (packages(pandas="3.0.1"), "pandas and pyspark", "warning", "does not fully support pandas 3.0.1"),
        (replace(GOOD, spark_home="3.5.1"), "SPARK_HOME and pyspark", "failed", "SPARK_HOME has Spark 3.5.1"),
        (jar("spark-sql-kafka-0-10_2.13-4.0.0.jar"), "Kafka connector and pyspark", "failed", "belongs to Spark 4.0.0"),
        (jar("spark-sql-kafka-0-10_2.12-4.3.0.jar"), "Kafka connector and pyspark", "failed", "has Scala 2.13"),
        (jar("iceberg-spark-runtime-4.0_2.13-1.10.0.jar"), "Iceberg connector and pyspark", "failed", "for Spark 4.0"),
        (jar("delta-spark_2.13-3.3.0.jar"), "Delta connector and pyspark", "failed", "another Spark than 4.3"),
    ],
)
def test_what_does_not_fit_is_told_with_what_to_do(machine: Machine, what: str, severity: str, said: str) -> None:
    [misfit] = misfits(machine)
    assert (misfit.what, misfit.severity) == (what, severity)
    assert said in misfit.found
    assert misfit.advice


def test_an_old_spark_wants_an_old_java_and_an_old_python() -> None:
    old = Machine(python="3.12.1", packages={"pyspark": "3.5.4"}, java=21)
    assert [misfit.what for misfit in misfits(old)] == ["java and pyspark", "python and pyspark"]
    assert misfits(replace(old, python="3.11.9", java=11)) == []
    assert [least_java(version) for version in ((3, 5), (4, 0), None)] == [8, 17, 17]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pyarrow<28,>=17; extra == 'arrow'", Requirement("pyarrow", ">=17,<28", "arrow")),
        ('pyiceberg[sql-sqlite]<0.13,>=0.11; extra == "iceberg"', Requirement("pyiceberg", ">=0.11,<0.13", "iceberg")),
        ("click<9,>=8.1", Requirement("click", ">=8.1,<9")),
        ("click", Requirement("click", "")),
        ("tomli; python_version < '3.11'", None),
    ],
)
def test_requirements_are_read_as_packages_write_them(line: str, expected: Requirement | None) -> None:
    assert parse_requirement(line) == expected


@pytest.mark.parametrize(
    ("version", "within", "fits"),
    [
        ("1.10.0", ">=1.9,<2", True),
        ("1.6.4", ">=1.6.4", True),
        ("1.6.3", ">=1.6.4", False),
        ("2.0", "<2", False),
        ("2.0.0rc1", "<2", False),
        ("28.0.1", ">=17,<28", False),
        ("1.0", "", True),
        ("strange", "<2", True),
    ],
)
def test_a_version_lies_in_its_range(version: str, within: str, fits: bool) -> None:
    assert is_within(version, within) is fits
