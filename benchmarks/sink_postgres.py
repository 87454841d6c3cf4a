"""Rows appended through the Postgres sink beside Spark's JDBC writer, on one server.

    python -m benchmarks.sink_postgres [--rounds N] [--rows N]

Goal: at least 5 times the speed of the JDBC writer as it comes; with reWriteBatchedInserts it stands beside. The sink
prepares and commits rows that are staged, as every epoch is, once for all sinks; a last line counts the staging too.
CPU seconds are those of everyone concerned: Python, Java and the server.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import adbc_driver_postgresql.dbapi as adbc
import pyarrow.parquet as pq
from benchmarks.pairs import Ratio, alternate, milliseconds, print_table, verdict
from benchmarks.places import scratch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.servers.postgres import PASSWORD, postgres
from tests.servers.spark import jdbc_conf
from tests.spark.session import start_session

from holdfast.decide.chain import NOTHING
from holdfast.epochs import Staged, StagedFile
from holdfast.sinks.postgres import Postgres
from holdfast.sinks.staged import StagedRows, encode_schema
from holdfast.spark.java import use_java
from holdfast.store import Address
from holdfast.testing.sinks import holder, step

GOAL = 5.0


def orders(spark: SparkSession, rows: int) -> DataFrame:
    """Two partitions, so two connections of the JDBC writer at once."""
    number = F.col("id")
    return spark.range(0, rows, 1, 2).select(
        number.alias("order"),
        F.concat(F.lit("sku-"), (number % 1000).cast("string")).alias("sku"),
        (number % 7).cast("int").alias("quantity"),
        (number * 0.25).alias("price"),
        F.timestamp_micros(F.lit(1_790_000_000_000_000) + number * 1000).alias("at"),
    )


class Sunk:
    """A sink that takes one epoch after the other."""

    def __init__(self, url: str, table: str) -> None:
        self._sink = Postgres(url, table)
        self._sink.fence(holder(0), NOTHING)
        self._epoch = 0

    def append(self, rows: StagedRows) -> None:
        to = step(self._epoch)
        self._sink.commit(to, self._sink.prepare(to, rows), rows)
        self._epoch += 1


def staged(frame: DataFrame, place: Path) -> StagedRows:
    frame.write.parquet(str(place))
    found = sorted(place.glob("*.parquet"))
    files = [StagedFile(file.name, file.stat().st_size, pq.read_metadata(file).num_rows) for file in found]
    return StagedRows(Staged(str(place), files, encode_schema(pq.read_schema(found[0]))), Address(str(place)))


class Spent:
    """CPU seconds of this process, of Java, and of the server with all its processes."""

    def __init__(self, java: int, server: int) -> None:
        self._java, self._server = java, server

    def of(self, act: Callable[[], object], costs: list[float]) -> None:
        before = self._now()
        act()
        costs.append(self._now() - before)

    def _now(self) -> float:
        ticks = sum(map(int, _status(self._server)[11:15])) + sum(map(int, _status(self._java)[11:13]))
        for place in Path("/proc").glob("[0-9]*"):
            # One that ends meanwhile is counted with the server's ended ones the next time.
            with suppress(OSError):
                status = _status(int(place.name))
                ticks += sum(map(int, status[11:13])) if int(status[1]) == self._server else 0
        return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()


def _status(process: int) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def empty(url: str, rows: int) -> None:
    """Take away what was written, which is all of it; and what one leaves to the disk must not be paid by the next."""
    with adbc.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for table in ("sunk", "written"):
            cursor.execute(f"SELECT to_regclass('{table}')::text")
            if cursor.fetchall() == [(table,)]:
                cursor.execute(f"SELECT count(*) FROM {table}")
                assert cursor.fetchall() in ([(rows,)], [(0,)])
                cursor.execute(f"TRUNCATE {table}")
        cursor.execute("CHECKPOINT")


def main() -> None:
    options = argparse.ArgumentParser(description="the Postgres sink beside Spark's JDBC writer")
    options.add_argument("--rounds", type=int, default=11)
    options.add_argument("--rows", type=int, default=1_000_000)
    chosen = options.parse_args()
    use_java()
    # Compiled as far as Java can: the session of the tests cuts that short.
    conf = {"spark.driver.extraJavaOptions": "", "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
    # The server is as it comes, and so has every commit on the disk.
    with scratch() as folder, postgres(options="") as server:
        spark = start_session({**jdbc_conf(), **conf})
        spent = Spent(int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()), server.pid)  # type: ignore[union-attr]
        url, frame = server.make_database("bench"), orders(spark, chosen.rows)
        sink, rows = Sunk(url, "sunk"), staged(frame, folder / "staged")

        def write(suffix: str) -> None:
            account = {"user": "postgres", "password": PASSWORD, "driver": "org.postgresql.Driver"}
            frame.write.jdbc(f"jdbc:postgresql://127.0.0.1:{server.port}/bench{suffix}", "written", "append", account)

        def stage_too() -> None:
            sink.append(staged(frame, folder / "again"))

        def tidy() -> None:
            shutil.rmtree(folder / "again", ignore_errors=True)
            empty(url, chosen.rows)

        pairs: list[tuple[str, Callable[[], None], str, float | None]] = [
            ("JDBC writer", partial(sink.append, rows), "", GOAL),
            ("… with reWriteBatchedInserts", partial(sink.append, rows), "?reWriteBatchedInserts=true", None),
            ("JDBC writer; staging counted too", stage_too, "", None),
        ]
        table = []
        for name, ours, suffix, goal in pairs:
            mine, theirs = list[float](), list[float]()
            first, second = partial(spent.of, ours, mine), partial(spent.of, partial(write, suffix), theirs)
            found = alternate(first, second, chosen.rounds, tidy=tidy)
            speed, cpu = found.wall.inverse, Ratio.of(theirs[1:], mine[1:])
            told = (f">= {goal}", verdict(speed.median >= goal)) if goal else ("", "")
            table.append((name, speed, milliseconds(found.first), milliseconds(found.second), cpu, *told))
    print_table(
        f"{chosen.rows} rows appended to PostgreSQL; the other over the sink, {chosen.rounds} pairs",
        ("other", "wall", "sink", "other", "CPU", "goal (wall)", ""),
        table,
    )


if __name__ == "__main__":
    main()
