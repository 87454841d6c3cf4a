"""What sinks are told to keep while a pipeline runs: no more and no less than somebody can go back to."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast import Description, KeepPolicy, SinkStatus, StoredPipeline
from holdfast.decide.chain import NOTHING
from holdfast.epochs import Target
from holdfast.errors import SinkUnavailable
from holdfast.pipeline.links import LINK, encode_link
from holdfast.pipeline.upkeep import EVERY, Upkeep, WayBackLimited
from holdfast.sinks import Delta, Iceberg, SQLite
from holdfast.sinks.contract import Sink
from holdfast.testing.sinks import holder, stage, step, words


class World:
    """A pipeline with a table, of which every epoch is committed and captured."""

    def __init__(self, folder: Path, sink: Sink) -> None:
        self.folder = folder
        self.sink = sink
        self.sink.fence(holder(0), NOTHING)
        self.stored: StoredPipeline = holdfast.open("memory://", create=True).pipeline("p")
        self.upkeep = Upkeep(self.stored, {"table": sink})

    def run(self, *epochs: int) -> None:
        with self.stored.recover() as checkpointer:
            for epoch in epochs:
                to, rows = step(epoch), stage(self.folder, words(1, word=f"{epoch}-"))
                target = Target(to.after, 0, self.sink.commit(to, self.sink.prepare(to, rows), rows))
                about = Description(
                    sinks={"table": SinkStatus(status="committed")},
                    sink_positions={"table": msgspec.to_builtins(target)},
                    metadata={LINK: encode_link(target.at)},
                )
                checkpointer.save_manifest(checkpointer.begin(epoch), about)

    def target(self, epoch: int) -> Target:
        return Target(step(epoch).after, 0)

    def tend(self) -> None:
        self.upkeep._looks = 0
        self.upkeep.look()
        self.upkeep.release()
        assert self.upkeep.error is None


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, SQLite(tmp_path / "t.db", "words", mode="upsert", key=["id"]))


def kept(world: World) -> list[int]:
    with closing(sqlite3.connect(world.folder / "t.db")) as db:
        return [row[0] for row in db.execute("SELECT _holdfast_epoch FROM words_holdfast_before ORDER BY 1")]


def test_nothing_is_let_go_of_while_all_checkpoints_stand(world: World) -> None:
    world.run(*range(5))
    world.tend()
    assert kept(world) == [1, 2, 3, 4]
    assert world.sink.why_not_back(world.target(0)) is None


def test_what_only_pruned_checkpoints_needed_goes(world: World) -> None:
    world.run(*range(6))
    world.stored.prune(KeepPolicy(last=2), dry_run=False)
    world.tend()
    assert kept(world) == [5]
    assert world.sink.why_not_back(world.target(4)) is None
    assert "kept no more" in (world.sink.why_not_back(world.target(3)) or "")


def test_a_savepoint_holds_the_way_back_until_its_name_is_taken_off(world: World) -> None:
    world.run(*range(6))
    world.stored["epoch:1"].savepoint("before")
    world.stored.prune(KeepPolicy(last=2), dry_run=False)
    world.tend()
    assert world.sink.why_not_back(world.target(1)) is None
    world.stored.remove_savepoint("before")
    world.stored.prune(KeepPolicy(last=2), dry_run=False)
    world.tend()
    assert "kept no more" in (world.sink.why_not_back(world.target(1)) or "")


def test_it_is_looked_only_now_and_then(world: World) -> None:
    world.run(*range(4))
    world.upkeep.look()
    world.upkeep.release()
    world.stored.prune(KeepPolicy(last=2), dry_run=False)
    for _ in range(EVERY - 1):
        world.upkeep.look()
        world.upkeep.release()
    assert kept(world) == [1, 2, 3]
    world.upkeep.look()
    assert kept(world) == [1, 2, 3], "only who commits changes the sink"
    world.upkeep.release()
    assert kept(world) == [3]


def test_what_fails_is_told_and_done_again(world: World) -> None:
    world.run(*range(4))
    world.stored.prune(KeepPolicy(last=2), dry_run=False)
    SQLite(world.folder / "t.db", "words", mode="upsert", key=["id"]).fence(holder(1), NOTHING)
    world.upkeep.look()
    world.upkeep.release()
    assert "HF-4001" in (world.upkeep.error or "")
    assert kept(world) == [0, 1, 2, 3]
    world.sink.fence(holder(2), NOTHING)
    world.tend()
    assert kept(world) == [3]


def test_savepoints_become_tags_however_they_were_made_and_go_with_them(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}", "warehouse": (tmp_path / "w").as_uri()}
    sink = Iceberg(catalog, "ns.words")
    world = World(tmp_path, sink)
    world.run(0, 1, 2)
    world.stored["epoch:1"].savepoint("before")
    world.tend()
    assert set(sink._catalog.load_table("ns.words").metadata.refs) == {"main", "holdfast-before"}
    world.stored.remove_savepoint("before")
    world.tend()
    assert set(sink._catalog.load_table("ns.words").metadata.refs) == {"main"}
    sink.close()


def test_an_older_list_of_savepoints_is_never_told_after_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads make a savepoint each; the first has read the list, and sleeps before it tells the sinks."""
    world = World(tmp_path, SQLite(tmp_path / "t.db", "words"))
    world.run(0, 1)
    told: list[set[str]] = []
    monkeypatch.setattr(world.sink, "hold", lambda savepoints: told.append(set(savepoints)))
    read, is_read, is_told = world.stored.savepoints, threading.Event(), threading.Event()

    def read_slowly() -> object:
        found = read()
        if not is_read.is_set():
            is_read.set()
            is_told.wait(1)
        return found

    monkeypatch.setattr(world.stored, "savepoints", read_slowly)
    world.stored["epoch:0"].savepoint("first")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(world.upkeep.hold)
        is_read.wait()
        world.stored["epoch:1"].savepoint("second")
        pool.submit(world.upkeep.hold).add_done_callback(lambda _done: is_told.set())
    first.result()
    assert told == [{"first"}, {"first", "second"}]


def test_a_table_that_may_not_keep_a_savepoint_is_warned_of(tmp_path: Path) -> None:
    world = World(tmp_path, Delta(str(tmp_path / "table")))
    world.run(0)
    with pytest.warns(WayBackLimited, match="delta.deletedFileRetentionDuration"):
        world.upkeep.warn()


def test_a_savepoint_whose_sink_can_not_be_reached_says_so(tmp_path: Path) -> None:
    world = World(tmp_path, Delta(str(tmp_path / "table")))
    world.run(0)
    (tmp_path / "table" / "_delta_log").rename(tmp_path / "gone")
    (tmp_path / "table" / "_delta_log").write_bytes(b"")
    with pytest.raises(SinkUnavailable):
        world.upkeep.warn()
