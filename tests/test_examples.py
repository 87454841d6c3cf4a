"""The examples run as a reader would run them, and their verdicts can be bad."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

import holdfast
from servers import KafkaServer, kafka_conf
from spark.session import start_session

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run(name: str, *arguments: str, cwd: Path) -> str:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def said(output: str, what: str) -> str:
    found = re.search(rf"^{what} +(\S+)$", output, re.MULTILINE)
    assert found is not None, output
    return found[1]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """The session of this process, which other tests may have started already: an example costs no new Spark."""
    return start_session(kafka_conf())


def test_a_plain_query_with_a_sidecar_goes_on_after_the_loss_of_its_directory(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert load("sidecar").run(spark, tmp_path) == 0
    output = capfd.readouterr().out
    assert output.splitlines()[-1] == "every order is counted once"
    assert "orders@before-the-loss is the checkpoint" in output
    assert not (tmp_path / "checkpoint").exists()


def test_the_sidecar_example_tells_when_totals_are_wrong(tmp_path: Path) -> None:
    sidecar = load("sidecar")
    (tmp_path / "totals").mkdir()
    (tmp_path / "totals" / "00000.json").write_text(json.dumps(sidecar.expected(12)))
    assert sidecar.totals_of(tmp_path) == sidecar.expected(12)
    (tmp_path / "totals" / "00001.json").write_text(json.dumps({"sku-1": 1}))
    assert sidecar.totals_of(tmp_path) != sidecar.expected(12)


def test_an_attached_query_has_savepoints_and_runs_again_from_one(tmp_path: Path) -> None:
    output = run("attach", "--work", str(tmp_path), cwd=tmp_path)
    assert re.search(r"restored and run on: \d+ words were put out, each with the same count", output)
    assert set(holdfast.open(str(tmp_path / "repository")).pipeline("words").savepoints()) == {"before-upgrade", "v1"}


@pytest.mark.filterwarnings("ignore::holdfast.pipeline.upkeep.WayBackLimited")
def test_orders_from_kafka_are_in_delta_and_in_postgres_once_and_are_rewound_in_both(
    spark: SparkSession,
    kafka_server: KafkaServer,
    postgres_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert load("kafka_pipeline").run(spark, tmp_path, kafka_server.bootstrap, postgres_url) == 0
    told = re.findall(r"Delta has (\d+) orders, PostgreSQL (\d+): as they were placed", capsys.readouterr().out)
    assert told == [("1000", "1000"), ("1500", "1500"), ("1000", "1000"), ("1500", "1500")]


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", ["attach", "kafka_pipeline", "sidecar"])
def test_soak_each_example_with_spark_runs_by_itself(name: str, tmp_path: Path) -> None:
    print(run(name, cwd=tmp_path))


def test_a_python_loop_that_is_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    output = run("python_loop", "--kills", "12", cwd=tmp_path)
    assert said(output, "kills") == "12"
    assert (said(output, "rows lost"), said(output, "rows doubled")) == ("0", "0")
    assert (said(output, "totals"), said(output, "generator")) == ("equal", "equal")
    assert int(said(output, "checkpoints")) > 12
    assert int(said(output, "replayed")) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tampering", "lost", "doubled"),
    [
        ("DELETE FROM orders WHERE sequence = 700", 1, 0),
        ("INSERT INTO orders SELECT * FROM orders WHERE sequence = 3", 0, 1),
        ("UPDATE orders SET coupon = coupon + 1 WHERE sequence = 999", 1, 1),
    ],
)
def test_the_python_loop_tells_when_rows_are_wrong(tmp_path: Path, tampering: str, lost: int, doubled: int) -> None:
    loop = load("python_loop")
    repository = (tmp_path / "repository").as_uri()
    holdfast.open(repository, create=True)
    loop.run_loop(repository, tmp_path, 1000, 0)
    assert loop.report(repository, tmp_path, 1000, loop.Tally()) == 0
    with sqlite3.connect(tmp_path / "orders.sqlite") as database:
        database.execute(tampering)
    database.close()
    verdict = loop.judge(repository, tmp_path, 1000)
    assert (verdict.lost, verdict.doubled, verdict.good) == (lost, doubled, False)
    assert loop.report(repository, tmp_path, 1000, loop.Tally()) == 1


def test_the_python_loop_tells_when_the_state_is_wrong(tmp_path: Path) -> None:
    loop = load("python_loop")
    repository = (tmp_path / "repository").as_uri()
    holdfast.open(repository, create=True)
    loop.run_loop(repository, tmp_path, 500, 0)
    verdict = loop.judge(repository, tmp_path, 501)
    assert (verdict.totals_equal, verdict.generator_equal, verdict.lost) == (False, False, 1)


@pytest.mark.soak
def test_soak_a_python_loop_through_hundreds_of_kills(tmp_path: Path) -> None:
    kills = os.environ.get("HOLDFAST_SOAK_ROUNDS", "300")
    seed = os.environ.get("HOLDFAST_SOAK_SEED", str(random.randrange(10**6)))
    output = run("python_loop", "--kills", kills, "--seed", seed, "--work", str(tmp_path), cwd=tmp_path)
    print(output)
    assert (said(output, "rows lost"), said(output, "rows doubled")) == ("0", "0")
    pipeline = holdfast.open(str(tmp_path / "repository")).pipeline("orders")
    assert not [fault for fault in pipeline.check(read_percent=100).faults if fault.severity != "note"]
