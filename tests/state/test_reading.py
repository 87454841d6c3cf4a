"""State as rows: every operator and store, whole and by key."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

import holdfast
from holdfast.errors import BadValue, DamagedArtifact, StateUnreadable
from holdfast.repository.artifacts import load_artifact
from holdfast.state import State, documents, open_state
from holdfast.state.reading import BY_KEY
from holdfast.state.where import leaves
from state.conftest import Tell

READ = [
    ("by-key", "hdfs"),
    ("window", "changelog-2"),
    ("tws-rows", "changelog-2"),
    ("join-left-3", "rocksdb"),
    ("session-window", "changelog"),
]
MORE = [
    ("by-key", "rocksdb-2"),
    ("window-twice", "rocksdb"),
    ("over-all", "changelog"),
    ("dedup", "changelog"),
    ("dedup-for-a-while", "hdfs"),
    ("join-inner-2", "hdfs"),
    ("join-left-4", "changelog-2"),
    ("group-state", "hdfs"),
    ("tws-pandas", "rocksdb"),
    ("tws-ttl", "changelog"),
]
CUT = 4


def plain(rows: list[Row]) -> list[str]:
    return sorted(map(repr, rows))


def scratches() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(".holdfast-state-*"))


def keys_of(rows: list[Row], state: State, schema: Any) -> list[dict[str, Any]]:
    """Some keys, field by field."""

    def field(row: Any, path: tuple[str, ...]) -> Any:
        for name in path:
            row = row[name]
        return row

    return [{name: field(row["key"], leaf.path) for name, leaf in leaves(schema).items()} for row in rows[:2]]


@pytest.mark.parametrize(("name", "store"), [*READ, *(pytest.param(*m, marks=pytest.mark.soak) for m in MORE)])
def test_rows_by_key_are_those_of_the_whole_and_come_from_one_partition(
    spark: SparkSession, tell: Tell, name: str, store: str
) -> None:
    checkpoint = tell(name, store).pipeline[f"epoch:{CUT}"]
    seen = 0
    with open_state(checkpoint, spark) as state:
        for part in state.parts:
            whole = state.rows(part.operator, part.name)
            rows = whole.collect()
            assert state.count(part) == len(rows)
            schema: Any = whole.schema["key"].dataType
            for where in keys_of(rows, state, schema) if leaves(schema) else ():
                found = state.rows(part.operator, part.name, where)
                wanted = [row for row in rows if keys_of([row], state, schema) == [where]]
                assert plain(found.collect()) == plain(wanted)
                seen += 1
        operators = state.inventory.operators.values()
        by_key = {o.number for o in operators if o.name in BY_KEY or o.name.startswith("transformWithState")}
        partial = {operator for operator, partition in state._laid if partition is not None and partition >= 0}
        assert partial == {n for n in by_key if state.inventory.operators[n].partitions > 1}
    assert seen or name == "over-all"


def test_a_key_that_is_not_there_gives_no_rows_and_a_bad_one_is_refused(spark: SparkSession, tell: Tell) -> None:
    checkpoint = tell("by-key", "hdfs").pipeline[f"epoch:{CUT}"]
    with open_state(checkpoint, spark) as state:
        assert state.rows(where={"key": "nobody"}).collect() == []
        with pytest.raises(BadValue, match="it has: key"):
            state.rows(where={"sku": "k1"})
        with pytest.raises(BadValue, match="There is operator 0"):
            state.rows(operator=3)
    checkpoint = tell("window", "changelog-2").pipeline[f"epoch:{CUT}"]
    with open_state(checkpoint, spark) as state, pytest.raises(BadValue, match="is no timestamp"):
        state.rows(where={"window.start": "noon"})


def test_a_part_of_a_key_is_looked_for_in_all_partitions(spark: SparkSession, tell: Tell) -> None:
    checkpoint = tell("window", "changelog-2").pipeline[f"epoch:{CUT}"]
    with open_state(checkpoint, spark) as state:
        found = documents(state.rows(where={"key": "k4"}))
        assert {row["key"]["key"] for row in found} == {"k4"}
        assert len(found) == state.rows().where("key.key = 'k4'").count() > 0


def test_the_settings_of_the_caller_stay_and_the_copy_is_removed(spark: SparkSession, tell: Tell) -> None:
    setting = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    before, there = spark.conf.get(setting), scratches()
    with open_state(tell("window", "changelog-2").pipeline[f"epoch:{CUT}"], spark) as state:
        assert state.session.conf.get(setting) == "2"
        assert state.rows().count() > 0
        assert len(scratches()) == len(there) + 1
    assert spark.conf.get(setting) == before
    assert scratches() == there


def test_a_flipped_bit_is_found_before_spark_sees_it(spark: SparkSession, tell: Tell, tmp_path: Path) -> None:
    truth = tell("by-key", "hdfs")
    other = truth.pipeline.repository.url.removeprefix("file://")
    copy = tmp_path / "repository"
    shutil.copytree(other, copy)
    checkpoint = holdfast.open(str(copy)).find(f"proof@epoch:{CUT}")
    newest = f"state/0/0/{CUT + 1}."  # a delta, or a snapshot where Spark's upkeep came before the capture
    [artifact] = [a for n, a in checkpoint.manifest.files.items() if n.startswith(newest)]
    assert artifact.path is not None
    pack = next(p for p in copy.rglob("*") if str(p).endswith(artifact.path))
    data = bytearray(pack.read_bytes())
    data[(artifact.offset or 0) + artifact.size_bytes // 2] ^= 1
    pack.write_bytes(data)
    with pytest.raises(DamagedArtifact):
        load_artifact(checkpoint.pipeline.records.store, checkpoint.pipeline.records.keys, artifact)
    with open_state(checkpoint, spark) as state, pytest.raises(DamagedArtifact):
        state.rows()


def test_the_state_of_a_loop_is_no_state_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    with holdfast.open(str(tmp_path), create=True).pipeline("loop").recover() as checkpointer:
        checkpointer.save_manifest(checkpointer.begin(epoch=1))
    latest = holdfast.open(str(tmp_path)).find("loop")
    with pytest.raises(StateUnreadable), open_state(latest, spark):
        pass
