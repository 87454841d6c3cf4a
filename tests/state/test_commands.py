"""`holdfast state` as a user calls it, on the state of a real query."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cli.sample_repository import invoke
from spark.proof import Truth
from state.conftest import Tell

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def truth(tell: Tell) -> Truth:
    return tell("window", "changelog-2")


@pytest.fixture
def repo(truth: Truth) -> list[str]:
    return ["--repo", truth.pipeline.repository.url]


def test_it_shows_operators_and_how_many_rows_they_keep(tell: Tell) -> None:
    transform = tell("tws-rows", "changelog-2")
    repo = ["--repo", transform.pipeline.repository.url]
    answer = invoke("state", "proof@epoch:4", *repo)
    assert answer.code == 0
    lines = [line.split() for line in answer.out.splitlines()]
    assert ["checkpoint", "proof@slot:0-4"] in lines
    assert [line[-5] for line in lines if "transformWithState," in line] == ["recent", "seen", "sums", "@timers"]
    document = invoke("state", "show", "proof@epoch:4", *repo, "--part", "sums", "--json").document
    [part] = document["parts"]
    assert (part["operator"], part["part"], part["partitions"]) == (0, "sums", 3)
    assert part["rows"] > 0


def test_it_shows_rows_and_those_of_a_key(repo: list[str]) -> None:
    document = invoke("state", "proof@epoch:4", *repo, "--rows", "--limit", "500", "--utc", "--json").document
    assert not document["more"]
    wanted = document["rows"][0]
    key = wanted["key"]
    start, end = key["window"]["start"], key["window"]["end"]
    where = ["--where", f"key={key['key']}", "--where", f"window.start={start}", "--where", f"window.end={end}"]
    assert invoke("state", "proof@epoch:4", *repo, *where, "--utc", "--json").document["rows"] == [wanted]
    table = invoke("state", "proof@epoch:4", *repo, *where, "--utc").out.splitlines()
    assert table[0].split() == [
        "key.window.start",
        "key.window.end",
        "key.key",
        "value.count",
        "value.sum",
        "partition_id",
    ]
    assert len(table) == 2
    short = invoke("state", "proof@epoch:4", *repo, "--rows", "--limit", "1").out
    assert "There are more" in short
    assert invoke("state", "proof@epoch:4", *repo, "--where", "key=nobody").out == "No rows.\n"


def test_bad_questions_are_answered_with_what_there_is(repo: list[str]) -> None:
    wrong = invoke("state", "proof@epoch:4", *repo, "--where", "sku=1")
    assert (wrong.code, "it has: window.start, window.end, key" in wrong.err) == (2, True)
    assert invoke("state", "proof@epoch:4", *repo, "--where", "sku").code == 2
    assert invoke("state", "proof@epoch:4", *repo, "--where", "key=1", "--where", "key=2").code == 2
    assert invoke("state", "proof@epoch:4", *repo, "--operator", "4").code == 2
    assert invoke("state", "nobody", *repo).code == 4


def test_it_exports_rows_as_parquet(repo: list[str], tmp_path: Path) -> None:
    document = invoke("state", "export", "proof@epoch:4", str(tmp_path / "rows"), *repo, "--json").document
    table = pq.read_table(tmp_path / "rows")
    assert table.column_names == ["key", "value", "partition_id"]
    assert table.num_rows == document["rows"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]
    assert invoke("state", "export", "proof@epoch:4", str(tmp_path / "rows"), *repo).code == 6
    said = invoke("state", "export", "proof@epoch:4", str(tmp_path / "some"), *repo, "--where", "key=k4").out
    assert f"{pq.read_table(tmp_path / 'some').num_rows} rows" in said


def test_it_tells_which_keys_changed(repo: list[str], truth: Truth, spark: SparkSession) -> None:
    from holdfast.state import documents, open_state

    def rows(epoch: int) -> dict[str, str]:
        with open_state(truth.pipeline[f"epoch:{epoch}"], spark) as state:
            return {repr(row["key"]): repr(row["value"]) for row in documents(state.rows())}

    old, new = rows(1), rows(4)
    document = invoke("state", "diff", "proof@epoch:1", "proof@epoch:4", *repo, "--limit", "500", "--json").document
    changed = {key for key in old.keys() & new.keys() if old[key] != new[key]}
    assert document["added"] == len(new.keys() - old.keys())
    assert document["removed"] == len(old.keys() - new.keys())
    assert document["changed"] == len(changed)
    assert len(document["rows"]) == document["added"] + document["removed"] + document["changed"] > 0
    assert {row["change"] for row in document["rows"]} <= {"added", "removed", "changed"}
    same = invoke("state", "diff", "proof@epoch:4", "proof@epoch:4", *repo)
    assert same.out == "0 added, 0 removed, 0 changed\n"
    short = invoke("state", "diff", "proof@epoch:1", "proof@epoch:4", *repo, "--limit", "1").out
    assert "more; --limit N shows more" in short


def test_lists_maps_and_timers_are_compared_key_by_key(tell: Tell) -> None:
    repo = ["--repo", tell("tws-rows", "changelog-2").pipeline.repository.url]
    for part in ("recent", "seen", "@timers"):
        words = ["state", "diff", "proof@epoch:2", "proof@epoch:4", "--part", part]
        document = invoke(*words, *repo, "--json").document
        assert document["changed"] + document["added"] > 0
        assert invoke("state", "diff", "proof@epoch:4", "proof@epoch:4", "--part", part, *repo).out.startswith(
            "0 added"
        )


def test_the_sides_of_a_join_are_shown_and_compared(tell: Tell, spark: SparkSession) -> None:
    from holdfast.state import open_state

    truth = tell("join-left-3", "rocksdb")
    repo = ["--repo", truth.pipeline.repository.url, "--limit", "500", "--json"]
    for side in ("left", "right"):
        with open_state(truth.pipeline["epoch:4"], spark) as state:
            rows = state.rows(part=side).collect()
        wanted = sorted((row["key"]["field0"], row["value"]["at"], row["value"]["value"]) for row in rows)
        shown = invoke("state", "proof@epoch:4", "--part", side, "--rows", *repo).document["rows"]
        assert sorted((row["key"]["field0"], row["value"]["at"], row["value"]["value"]) for row in shown) == wanted
        assert wanted
        document = invoke("state", "diff", "proof@epoch:3", "proof@epoch:4", "--part", side, *repo).document
        now = {row["key"]["field0"]: row["after"] for row in document["rows"] if row["after"]}
        assert now
        for key, values in now.items():
            assert sorted((key, v["at"], v["value"]) for v in values) == [row for row in wanted if row[0] == key]


def test_it_rescales_into_a_directory_that_spark_starts_from(repo: list[str], tmp_path: Path) -> None:
    words = ["state", "rescale", "proof@epoch:3", str(tmp_path / "two"), "--partitions", "2"]
    answer = invoke(*words, *repo)
    assert answer.code == 0
    assert "state in 2 partitions, not 3, all" in answer.out
    assert f'.option("checkpointLocation", "file:{tmp_path}/two")' in answer.out
    assert "The next batch is 5." in answer.out
    assert invoke(*words, *repo).code == 6
