"""The contract of a sink as a suite of tests: one that passes can be part of a pipeline.

class TestMySink(SinkContract):
    def open(self, mode, key):
        return MySink(self.place, mode=mode, key=key)     # another handle of the same target, each time

    def read(self):
        return [...]                                      # its visible rows, as dicts, in any order
"""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.decide.chain import NOTHING, Holder, Link, Step
from holdfast.errors import ChainBroken, Fenced, SinkTaken, SinkUnfit
from holdfast.sinks.contract import Sink, Target, WriteMode
from holdfast.sinks.staged import Staged, StagedFile, StagedRows, encode_schema
from holdfast.store import Address

__all__ = ["SCHEMA", "SinkContract", "holder", "stage", "step"]

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string()), ("seen", pa.timestamp("us", tz="UTC"))])
SEEN = datetime.datetime(2026, 11, 15, 10, 30, 0, 250_000, tzinfo=datetime.UTC)

Row = Mapping[str, Any]


def holder(generation: int, pipeline: str = "pipeline-1", token: str = "") -> Holder:
    """The holder of a generation; give a token to have two that share the number."""
    return Holder(pipeline, generation, token or f"{generation:032x}")


def step(epoch: int, decided: int = 0, offsets: str | None = None, before: str | None = None) -> Step:
    """The step to an epoch from the one before it."""
    link = Link(epoch - 1, f"at {epoch - 1}" if before is None else before) if epoch > 0 else NOTHING
    return Step(decided, link, Link(epoch, f"at {epoch}" if offsets is None else offsets))


def stage(folder: Path, rows: Sequence[Row], schema: pa.Schema = SCHEMA, files: int = 2) -> StagedRows:
    """Rows written as Parquet into some files of a folder of their own, as a pipeline stages them."""
    place = Path(tempfile.mkdtemp(prefix="hf-", dir=folder))
    written = []
    for number in range(files):
        table = pa.Table.from_pylist([dict(row) for row in rows[number::files]], schema=schema)
        path = place / f"part-{number:05}.parquet"
        pq.write_table(table, path)
        written.append(StagedFile(path.name, path.stat().st_size, table.num_rows))
    return StagedRows(Staged(str(place), written, encode_schema(schema)), Address(str(place)))


def words(*ids: int, word: str = "w") -> list[dict[str, Any]]:
    return [{"id": number, "word": f"{word}{number}", "seen": SEEN} for number in ids]


class SinkContract:
    """One test for each promise of `holdfast.sinks.Sink`; a subclass gives `open` and `read`.

    Say `rolls_back = False` for a sink that can't, name the `modes` that it has, and say `has_columns = False` for a
    target that takes rows of any columns.
    """

    modes: Sequence[WriteMode] = ("append",)
    rolls_back = True
    has_columns = True

    def open(self, mode: WriteMode, key: Sequence[str]) -> Sink:
        """A new handle of one and the same target, which is empty, or not there, when a test begins."""
        raise NotImplementedError

    def read(self) -> Iterable[Row]:
        """The rows that a reader of the target sees now, with the columns of SCHEMA at least."""
        raise NotImplementedError

    # ---- what the tests say it with ----

    @pytest.fixture(autouse=True)
    def _handles(self, tmp_path: Path) -> Iterator[None]:
        self.folder = tmp_path
        self._open: list[Sink] = []
        yield
        for sink in self._open:
            sink.close()

    def handle(self, mode: WriteMode = "append") -> Sink:
        sink = self.open(mode, ["id"] if mode == "upsert" else [])
        self._open.append(sink)
        return sink

    def fenced(self, generation: int = 0, mode: WriteMode = "append") -> Sink:
        sink = self.handle(mode)
        sink.fence(holder(generation), NOTHING)
        return sink

    def seen(self) -> list[tuple[int, str]]:
        return sorted((row["id"], row["word"]) for row in self.read())

    def put(self, sink: Sink, to: Step, rows: Sequence[Row]) -> Target:
        """Prepare and commit; gives the way back to here."""
        staged = stage(self.folder, rows)
        position = sink.commit(to, sink.prepare(to, staged), staged)
        return Target(to.after, to.decided, position)

    def only(self, *modes: WriteMode) -> list[WriteMode]:
        return [mode for mode in modes if mode in self.modes]

    # ---- committing ----

    def test_a_new_sink_has_no_marker_and_begins_where_it_is_told_to(self) -> None:
        sink = self.handle()
        assert sink.look() is None
        begin = Link(41, "at 41")
        assert sink.fence(holder(3), begin).at == begin
        marker = self.handle().look()
        assert marker is not None
        assert (marker.holder, marker.at) == (holder(3), begin)
        self.put(sink, step(42, 3), words(1))
        assert self.seen() == [(1, "w1")]

    def test_rows_are_seen_after_the_commit_and_not_before(self) -> None:
        sink = self.fenced()
        staged = stage(self.folder, words(1, 2, 3))
        token = sink.prepare(step(0), staged)
        assert self.seen() == []
        sink.commit(step(0), token, staged)
        assert self.seen() == [(1, "w1"), (2, "w2"), (3, "w3")]
        marker = self.handle().look()
        assert marker is not None
        assert (marker.at, marker.decided) == (Link(0, "at 0"), 0)

    def test_a_commit_that_comes_again_changes_nothing(self) -> None:
        sink = self.fenced()
        staged = stage(self.folder, words(1, 2))
        token = sink.prepare(step(0), staged)
        first = sink.commit(step(0), token, staged)
        assert sink.commit(step(0), token, staged) == first
        assert self.seen() == [(1, "w1"), (2, "w2")]

    def test_another_process_commits_by_the_token_alone(self) -> None:
        dead = self.fenced(0)
        staged = stage(self.folder, words(1, 2))
        token = dead.prepare(step(0), staged)
        dead.close()
        taker = self.fenced(1)
        taker.commit(step(0), token, staged)
        taker.commit(step(0), token, staged)
        assert self.seen() == [(1, "w1"), (2, "w2")]
        self.put(taker, step(1, 1), words(3))
        assert self.seen() == [(1, "w1"), (2, "w2"), (3, "w3")]

    def test_an_epoch_without_rows_moves_the_marker(self) -> None:
        sink = self.fenced()
        self.put(sink, step(0), [])
        self.put(sink, step(1), words(1))
        assert self.seen() == [(1, "w1")]

    def test_an_epoch_that_moves_no_source_puts_out_its_rows_too(self) -> None:
        sink = self.fenced()
        self.put(sink, step(0), words(1))
        self.put(sink, step(1, offsets="at 0"), words(2))
        self.put(sink, step(2, before="at 0"), words(3))
        assert self.seen() == [(1, "w1"), (2, "w2"), (3, "w3")]

    def test_what_was_aborted_is_never_seen_and_can_be_prepared_again(self) -> None:
        sink = self.fenced()
        sink.abort(sink.prepare(step(0), stage(self.folder, words(7))))
        self.put(sink, step(0), words(1))
        assert self.seen() == [(1, "w1")]

    def test_what_was_prepared_and_given_up_is_never_seen(self) -> None:
        dead = self.fenced(0)
        dead.prepare(step(0), stage(self.folder, words(7)))
        dead.close()
        self.put(self.fenced(1), step(0, 1), words(1))
        assert self.seen() == [(1, "w1")]

    def test_every_column_comes_back_as_it_was(self) -> None:
        self.put(self.fenced(), step(0), [{"id": 1, "word": 'it\'s "so" ✓', "seen": None}, *words(2)])
        found = {row["id"]: row for row in self.read()}
        assert found[1]["word"] == 'it\'s "so" ✓'
        assert found[1]["seen"] is None
        assert "2026-11-15" in str(found[2]["seen"])

    # ---- fencing ----

    def test_a_stale_holder_commits_nothing(self) -> None:
        zombie = self.fenced(0)
        staged = stage(self.folder, words(1))
        token = zombie.prepare(step(0), staged)
        self.fenced(1)
        with pytest.raises(Fenced):
            zombie.commit(step(0), token, staged)
        assert self.seen() == []

    def test_a_stale_holder_commits_nothing_after_the_new_one_has(self) -> None:
        zombie = self.fenced(0)
        staged = stage(self.folder, words(1))
        token = zombie.prepare(step(0), staged)
        taker = self.fenced(1)
        self.put(taker, step(0, 1), words(2))
        with pytest.raises(Fenced):
            zombie.commit(step(0), token, staged)
        assert self.seen() == [(2, "w2")]
        self.put(taker, step(1, 1), words(3))
        assert self.seen() == [(2, "w2"), (3, "w3")]

    def test_a_fence_keeps_what_was_committed(self) -> None:
        self.put(self.fenced(0), step(0), words(1))
        marker = self.handle().fence(holder(1), NOTHING)
        assert (marker.at, marker.decided, marker.holder.generation) == (Link(0, "at 0"), 0, 1)
        assert self.seen() == [(1, "w1")]

    def test_a_lower_generation_and_another_owner_of_the_same_are_refused(self) -> None:
        self.fenced(2)
        with pytest.raises(Fenced):
            self.handle().fence(holder(1), NOTHING)
        with pytest.raises(Fenced):
            self.handle().fence(holder(2, token="f" * 32), NOTHING)
        assert self.handle().fence(holder(2), NOTHING).holder == holder(2)

    def test_another_pipelines_sink_is_refused(self) -> None:
        self.put(self.fenced(0), step(0), words(1))
        with pytest.raises(SinkTaken):
            self.handle().fence(holder(9, "pipeline-2"), NOTHING)
        assert self.seen() == [(1, "w1")]

    # ---- the chain ----

    def test_an_epoch_that_does_not_join_on_is_refused(self) -> None:
        sink = self.fenced()
        self.put(sink, step(0), words(1))
        self.put(sink, step(1), words(2))
        for bad in (step(3), step(0), step(2, before="elsewhere")):
            staged = stage(self.folder, words(9))
            with pytest.raises(ChainBroken):
                sink.commit(bad, sink.prepare(bad, staged), staged)
        assert self.seen() == [(1, "w1"), (2, "w2")]
        self.put(sink, step(2), words(3))
        assert self.seen() == [(1, "w1"), (2, "w2"), (3, "w3")]

    def test_the_same_epoch_of_another_timeline_is_not_taken_for_the_one_that_is_held(self) -> None:
        self.put(self.fenced(0), step(0), words(1))
        taker = self.fenced(1)
        staged = stage(self.folder, words(2))
        with pytest.raises(ChainBroken):
            taker.commit(step(0, 1), taker.prepare(step(0, 1), staged), staged)
        assert self.seen() == [(1, "w1")]

    # ---- going back ----

    def test_rows_after_a_target_are_taken_back_and_others_come_in_their_place(self) -> None:
        for mode in self.only("append") if self.rolls_back else []:
            sink = self.fenced(mode=mode)
            first = self.put(sink, step(0), words(1))
            self.put(sink, step(1), words(2))
            self.put(sink, step(2), words(3))
            taker = self.fenced(1, mode)
            assert taker.why_not_back(first) is None
            taker.roll_back(first)
            assert self.seen() == [(1, "w1")]
            taker.roll_back(first)
            marker = self.handle(mode).look()
            assert marker is not None
            assert (marker.at, marker.decided, marker.holder) == (first.at, first.decided, holder(1))
            self.put(taker, step(1, 1, offsets="other"), words(20))
            self.put(taker, step(2, 1, before="other"), words(30))
            assert self.seen() == [(1, "w1"), (20, "w20"), (30, "w30")]

    def test_a_stale_holder_takes_nothing_back(self) -> None:
        if not self.rolls_back:
            return
        zombie = self.fenced(0)
        first = self.put(zombie, step(0), words(1))
        self.put(zombie, step(1), words(2))
        self.fenced(1)
        with pytest.raises(Fenced):
            zombie.roll_back(first)
        assert self.seen() == [(1, "w1"), (2, "w2")]

    def test_a_sink_goes_back_to_before_its_first_epoch(self) -> None:
        if not self.rolls_back:
            return
        begin = Link(4, "at 4")
        sink = self.handle()
        sink.fence(holder(0), begin)
        self.put(sink, step(5), words(1))
        sink.roll_back(Target(begin, 0))
        assert self.seen() == []
        self.put(sink, step(5, offsets="other"), words(2))
        assert self.seen() == [(2, "w2")]

    def test_a_sink_that_can_not_go_back_says_so(self) -> None:
        if self.rolls_back:
            return
        sink = self.fenced()
        first = self.put(sink, step(0), words(1))
        self.put(sink, step(1), words(2))
        assert sink.why_not_back(first)

    def test_a_target_that_it_never_reached_is_told(self) -> None:
        sink = self.fenced()
        self.put(sink, step(0), words(1))
        assert sink.why_not_back(Target(Link(9, "at 9"), 0, None))

    # ---- other modes ----

    def test_a_row_takes_the_place_of_the_one_with_its_key_and_gives_it_back(self) -> None:
        for mode in self.only("upsert"):
            sink = self.fenced(mode=mode)
            self.put(sink, step(0), words(1, 2))
            second = self.put(sink, step(1), words(2, 3, word="x"))
            assert self.seen() == [(1, "w1"), (2, "x2"), (3, "x3")]
            self.put(sink, step(2), words(1, 3, 4, word="y"))
            self.put(sink, step(3), words(3, word="z"))
            assert self.seen() == [(1, "y1"), (2, "x2"), (3, "z3"), (4, "y4")]
            if self.rolls_back:
                assert sink.why_not_back(second) is None
                sink.roll_back(second)
                assert self.seen() == [(1, "w1"), (2, "x2"), (3, "x3")]
                self.put(sink, step(2, offsets="other"), words(3, word="o"))
                assert self.seen() == [(1, "w1"), (2, "x2"), (3, "o3")]

    def test_rows_without_a_key_or_with_the_same_key_twice_are_refused_before_the_decision(self) -> None:
        for mode in self.only("upsert"):
            sink = self.fenced(mode=mode)
            self.put(sink, step(0), words(1))
            nameless = [{"id": None, "word": "none", "seen": None}, *words(2)]
            for bad in (nameless, [*words(2), *words(2, word="x")]):
                with pytest.raises(SinkUnfit):
                    sink.prepare(step(1), stage(self.folder, bad))
            self.put(sink, step(1), words(3))
            assert self.seen() == [(1, "w1"), (3, "w3")]

    def test_an_epoch_takes_the_place_of_all_before_it_and_gives_them_back(self) -> None:
        for mode in self.only("overwrite"):
            sink = self.fenced(mode=mode)
            first = self.put(sink, step(0), words(1, 2))
            self.put(sink, step(1), words(2, 3, word="x"))
            assert self.seen() == [(2, "x2"), (3, "x3")]
            empty = self.put(sink, step(2), [])
            assert self.seen() == []
            self.put(sink, step(3), words(4))
            if self.rolls_back:
                sink.roll_back(empty)
                assert self.seen() == []
                assert sink.why_not_back(first) is None
                sink.roll_back(first)
                assert self.seen() == [(1, "w1"), (2, "w2")]

    @pytest.mark.parametrize("mode", ["append", "upsert", "overwrite"])
    def test_what_is_not_released_can_still_be_gone_back_to(self, mode: WriteMode) -> None:
        for chosen in self.only(mode) if self.rolls_back else []:
            sink = self.fenced(mode=chosen)
            targets = [self.put(sink, step(epoch), words(1, word=f"{epoch}-")) for epoch in range(4)]
            before = self.seen()
            sink.release(targets[2].at)
            assert self.seen() == before
            assert sink.why_not_back(targets[2]) is None
            sink.roll_back(targets[2])
            assert (1, "2-1") in self.seen()
            assert (1, "3-1") not in self.seen()

    def test_holding_savepoints_changes_no_row_and_bars_no_way(self) -> None:
        sink = self.fenced()
        first = self.put(sink, step(0), words(1))
        second = self.put(sink, step(1), words(2))
        for held in ({"a": first}, {"a": first, "b": second}, {"a": first, "b": second}, {"b": second}, {}):
            sink.hold(held)
        assert self.seen() == [(1, "w1"), (2, "w2")]
        assert list(sink.foreign_since(first)) == []
        assert all(isinstance(caution, str) for caution in sink.cautions())
        self.put(sink, step(2), words(3))
        if self.rolls_back:
            sink.roll_back(first)
            assert self.seen() == [(1, "w1")]

    # ---- bad input ----

    def test_another_column_is_refused_before_anything_is_written(self) -> None:
        if not self.has_columns:
            return
        sink = self.fenced()
        self.put(sink, step(0), words(1))
        other = SCHEMA.append(pa.field("more", pa.int64()))
        with pytest.raises(SinkUnfit):
            self.handle().check(other)
        with pytest.raises(SinkUnfit):
            sink.prepare(step(1), stage(self.folder, [{**words(2)[0], "more": 1}], other))
        assert self.seen() == [(1, "w1")]

    def test_another_type_is_refused_before_anything_is_written(self) -> None:
        if not self.has_columns:
            return
        sink = self.fenced()
        self.put(sink, step(0), words(1))
        other = pa.schema([("id", pa.string()), ("word", pa.string()), ("seen", pa.timestamp("us", tz="UTC"))])
        with pytest.raises(SinkUnfit):
            self.handle().check(other)
        with pytest.raises(SinkUnfit):
            sink.prepare(step(1), stage(self.folder, [{"id": "one", "word": "w", "seen": None}], other))
        assert self.seen() == [(1, "w1")]

    def test_a_key_that_the_rows_do_not_have_is_refused(self) -> None:
        for mode in self.only("upsert"):
            sink = self.open(mode, ["nowhere"])
            self._open.append(sink)
            with pytest.raises(SinkUnfit):
                sink.check(SCHEMA)
