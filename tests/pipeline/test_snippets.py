"""What the pages show of pipelines runs as it stands, with folders and real servers in place of the addresses."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import holdfast
from servers.postgres import postgres

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::holdfast.pipeline.upkeep.WayBackLimited")
SCHEMA = "ts TIMESTAMP, sku STRING, amount LONG"


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a repository and orders to read."""
    monkeypatch.chdir(tmp_path)
    holdfast.open("repository", create=True)
    (tmp_path / "in").mkdir()
    rows = [f'{{"ts": "2026-11-16T10:0{n}:00Z", "sku": "s{n % 2}", "amount": {n}}}' for n in range(6)]
    (tmp_path / "in/orders.json").write_text("\n".join(rows))
    return tmp_path


def test_the_first_pipeline_of_the_how_to_runs_is_named_stopped_and_rewound(here: Path, spark: SparkSession) -> None:
    names: dict[str, Any] = {"spark": spark}
    # Java has a current folder of its own.
    code = blocks("docs/how-to/pipelines.md")[0].replace('json("in")', f'json("{here}/in")')
    exec(compile(code, "snippet", "exec"), names)
    stored = holdfast.open("repository").pipeline("orders")
    assert set(stored.savepoints()) == {"before-upgrade", "v1"}
    table = DeltaTable(str(here / "out/orders")).to_pyarrow_table().num_rows
    with duckdb.connect(str(here / "out/orders.duckdb")) as db:
        assert db.execute("SELECT count(*) FROM orders").fetchall() == [(table,)]


def test_the_driver_state_of_the_how_to_counts_every_row(here: Path, spark: SparkSession) -> None:
    names: dict[str, Any] = {}
    exec(compile(blocks("docs/how-to/pipelines.md")[1], "snippet", "exec"), names)
    pipeline = names["with_state"](
        sources={"events": spark.readStream.schema(SCHEMA).json(str(here / "in"))},
        query=lambda events: events,
        sinks={"db": holdfast.sinks.SQLite(here / "rows.db", "rows")},
    )
    pipeline.start("repository", trigger={"availableNow": True}).await_termination()
    assert names["seen"]["rows"] == 6
    latest = holdfast.open("repository").pipeline("orders").latest()
    assert latest is not None
    assert set(latest.manifest.driver_states) == {"seen"}


def test_the_pipeline_of_the_readme_runs_on_a_real_database(here: Path, spark: SparkSession) -> None:
    [code] = [block for block in blocks("README.md") if "Pipeline(" in block]
    code = code.replace("s3://lake/orders", str(here / "table")).replace("s3://bucket/holdfast", "repository")
    stream = spark.readStream.schema(SCHEMA).json(str(here / "in"))
    reader = SimpleNamespace(options=lambda **_options: SimpleNamespace(load=lambda: stream))

    def count_by_sku(events: DataFrame) -> DataFrame:
        return events.withWatermark("ts", "1 minute").groupBy(F.window("ts", "1 minute"), "sku").count()

    with postgres() as server:
        names = {
            "holdfast": holdfast,
            "spark": SimpleNamespace(readStream=SimpleNamespace(format=lambda _kind: reader)),
            "kafka": {},
            "count_by_sku": count_by_sku,
            "url": server.make_database("readme"),
        }
        exec(compile(code, "snippet", "exec"), names)
        for sink in names["pipeline"].sinks.values():  # type: ignore[attr-defined]
            sink.close()
    assert set(holdfast.open("repository").pipeline("orders").savepoints()) == {"before-upgrade"}


def test_the_activation_of_the_how_to_goes_on_from_a_copy(here: Path, spark: SparkSession) -> None:
    [code] = blocks("docs/how-to/standby.md")
    pipeline = holdfast.Pipeline(
        "orders",
        sources={"events": spark.readStream.schema(SCHEMA).json(str(here / "in"))},
        query=lambda events: events,
        sinks={"db": holdfast.sinks.SQLite(here / "rows.db", "rows")},
    )
    pipeline.start("repository", trigger={"availableNow": True}).await_termination()
    holdfast.open("repository").copy_to(holdfast.open("copy", create=True), "orders")
    names: dict[str, Any] = {"pipeline": pipeline}
    exec(compile(code.replace("az://container/standby", "copy"), "snippet", "exec"), names)
    with names["run"] as run:
        assert (run.generation, run.recovery.epoch, run.recovery.rolled_back) == (1, 0, ())
