"""What the pages show of state runs as it stands, on real queries and with folders in place of the addresses."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import holdfast
from holdfast.state import documents, open_state
from pages.blocks import Page
from pages.playing import Play
from spark.workloads import STORES, configured
from state.recent import Recent

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def here(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints that the pages speak of."""
    root = tmp_path_factory.mktemp("pages")
    (root / "in").mkdir()
    rows = [
        {"sku": f"A-{16 + n % 3}", "currency": ("USD", "EUR")[n % 2], "user": f"u-{4710 + n % 2}", "amount": n}
        for n in range(40)
    ]
    (root / "in" / "orders.json").write_text("\n".join(map(json.dumps, rows)))
    repository = holdfast.open(str(root / "repository"), create=True)
    events = spark.readStream.schema("sku STRING, currency STRING, user STRING, amount LONG").json(str(root / "in"))

    def run(query: DataFrame, name: str, savepoints: dict[str, str]) -> None:
        with configured(spark, STORES["changelog"]):
            writer = query.writeStream.format("noop").outputMode("update")
            started = writer.option("checkpointLocation", str(root / name)).trigger(availableNow=True).start()
        started.awaitTermination()
        for pipeline, savepoint in savepoints.items():
            holdfast.capture(root / name, repository, pipeline=pipeline, stopped=True).savepoint(savepoint)

    run(events.groupBy("sku", "currency").sum("amount"), "totals", {"totals": "before-edit"})
    recent = events.groupBy("user").transformWithState(Recent(), "user STRING, n LONG", "Update", "None")
    run(recent, "sessions", {"sessions": "before-edit"})
    counted = events.groupBy("sku").agg(F.count("*").alias("count"), F.sum("amount").alias("sum"))
    run(counted, "orders", {"orders": "before-upgrade"})
    repository.find("orders").savepoint("before-rescale")
    more = [{"sku": "B-90", "amount": 12}, {"sku": "A-17", "amount": 5}]
    (root / "in" / "more.json").write_text("\n".join(map(json.dumps, more)))
    run(counted, "orders", {"orders": "after"})
    (root / "data").mkdir()
    return root


def play(page: str, here: Path, spark: SparkSession) -> dict[str, Any]:
    names: dict[str, Any] = {"spark": spark}
    places = {"s3://bucket/holdfast": here / "repository", "s3a://lake": here / "lake", "/data": here / "data"}
    for code in blocks(page):
        for address, folder in places.items():
            code = code.replace(f'"{address}', f'"{folder}')
        exec(compile(code, page, "exec"), names)
    return names


def type_commands(page: str, here: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the page's commands to the command line, and compare what they say with what it shows."""
    monkeypatch.chdir(here / "data")
    monkeypatch.setenv("HOLDFAST_REPO", str(here / "repository"))
    played = Play(Page(page), here, request.getfixturevalue)
    played.stands_for["/data/"] = f"{here}/data/"
    played.type(*(command for block in played.page.of("console") for command in block.commands if any(command.shown)))


def test_what_the_commands_show_of_state_is_what_they_say(
    here: Path, spark: SparkSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_commands("docs/how-to/look-into-state.md", here, request, monkeypatch)
    type_commands("docs/how-to/change-shuffle-partitions.md", here, request, monkeypatch)


def test_rows_are_looked_at_and_written(here: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    play("docs/how-to/look-into-state.md", here, spark)
    assert "A-17" in capsys.readouterr().out
    assert all(row["value"]["sum"] > 100 for row in spark.read.parquet(str(here / "lake/large")).collect())


def test_partitions_are_changed(here: Path, spark: SparkSession) -> None:
    shutil.rmtree(here / "data/checkpoints/orders-64", ignore_errors=True)
    play("docs/how-to/change-shuffle-partitions.md", here, spark)
    assert (here / "data/checkpoints/orders-64/state/0/63").is_dir()


def test_state_is_edited(here: Path, spark: SparkSession) -> None:
    play("docs/how-to/edit-state.md", here, spark)
    repository = holdfast.open(str(here / "repository"))

    def rows(directory: str, reference: str, part: str | None = None) -> list[dict[str, Any]]:
        taken = holdfast.capture(here / "data/checkpoints" / directory, repository, pipeline=reference, stopped=True)
        with open_state(taken, spark) as state:
            return documents(state.rows(part=part, whole=True))

    with open_state(repository.find("totals@before-edit"), spark) as state:
        before = {repr(row["key"]): row["value"]["sum"] for row in documents(state.rows())}
    after = {repr(row["key"]): row["value"]["sum"] for row in rows("totals-2", "totals")}
    assert after == {key: total * (100 if "EUR" in key else 1) for key, total in before.items()}
    assert {len(row["list_value"]) for row in rows("sessions-2", "sessions", "recent")} == {10}
    assert {row["key"]["user"] for row in rows("sessions-3", "sessions", "count")} == {"u-4710"}
