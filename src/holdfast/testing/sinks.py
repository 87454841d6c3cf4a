"""The contract of a sink as a suite of tests: one that passes can be part of a pipeline.

class TestMySink(SinkContract):
    def open(self, mode, key):
        return MySink(self.place, mode=mode, key=key)     # another handle of the same target, each time

    def read(self):
        return [...]                                      # its visible rows, as dicts, in any order
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.decide.chain import NOTHING, Link, Step
from holdfast.errors import ChainBroken, Fenced, SinkTaken, SinkUnfit
from holdfast.sinks.contract import Marker, Sink
from holdfast.sinks.staged import StagedRows
from holdfast.testing.pausing import Pause
from holdfast.testing.sink_hands import SCHEMA, Row, holder, stage, step, words
from holdfast.testing.sink_ways_back import WaysBack

__all__ = ["SCHEMA", "Row", "SinkContract", "holder", "stage", "step", "words"]


ODD_NAMES = [
    "WORD",
    "sum(CASE WHEN (status = 'paid') THEN (amount * exchange_rate) ELSE 0.0 END)",
    "xmin",
    "_HOLDFAST_epoch",
    "a b,c;{}()\n\t=",
    "'\"`\\?1",
    "ö",
]
"""Names that Spark lets a column have, its own default for an aggregate among them."""


class SinkContract(WaysBack):
    """One test for each promise of `holdfast.sinks.Sink`; a subclass gives `open` and `read`.

    Say `rolls_back = False` for a sink that can't, name the `modes` that it has, and say `has_columns = False` for a
    target that takes rows of any columns. Give `meddle` as well where `foreign_since` lists what others change. Turn
    `races` down where a commit takes long: to find a look and a write that are not one transaction, a commit and a
    take-over are paused at so many lines of the sink's code.
    """

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
        token = self.prepare(sink, step(0), staged)
        assert self.seen() == []
        sink.commit(step(0), token, staged)
        assert self.seen() == [(1, "w1"), (2, "w2"), (3, "w3")]
        marker = self.handle().look()
        assert marker is not None
        assert (marker.at, marker.decided) == (Link(0, "at 0"), 0)

    def test_a_commit_that_comes_again_changes_nothing(self) -> None:
        sink = self.fenced()
        staged = stage(self.folder, words(1, 2))
        token = self.prepare(sink, step(0), staged)
        first = sink.commit(step(0), token, staged)
        assert sink.commit(step(0), token, staged) == first
        assert self.seen() == [(1, "w1"), (2, "w2")]

    def test_another_process_commits_by_the_token_alone(self) -> None:
        dead = self.fenced(0)
        staged = stage(self.folder, words(1, 2))
        token = self.prepare(dead, step(0), staged)
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
        sink.abort(self.prepare(sink, step(0), stage(self.folder, words(7))))
        self.put(sink, step(0), words(1))
        assert self.seen() == [(1, "w1")]

    def test_an_abort_takes_away_nothing_of_another_attempt(self) -> None:
        zombie = self.fenced(0)
        first = [self.prepare(zombie, step(0), stage(self.folder, words(number))) for number in (7, 8)]
        taker = self.fenced(1)
        second, third = stage(self.folder, words(1)), stage(self.folder, words(2))
        given_up, token = self.prepare(taker, step(0, 1), second), self.prepare(taker, step(0, 1), third)
        zombie.abort(first[0])
        taker.abort(given_up)
        taker.commit(step(0, 1), token, third)
        zombie.abort(first[1])
        assert self.seen() == [(2, "w2")]

    def test_what_was_prepared_and_given_up_is_never_seen(self) -> None:
        dead = self.fenced(0)
        self.prepare(dead, step(0), stage(self.folder, words(7)))
        dead.close()
        self.put(self.fenced(1), step(0, 1), words(1))
        assert self.seen() == [(1, "w1")]

    def test_every_column_comes_back_as_it_was(self) -> None:
        self.put(self.fenced(), step(0), [{"id": 1, "word": 'it\'s "so" ✓', "seen": None}, *words(2)])
        found = {row["id"]: row for row in self.read()}
        assert found[1]["word"] == 'it\'s "so" ✓'
        assert found[1]["seen"] is None
        assert "2026-11-15" in str(found[2]["seen"])

    def test_a_commit_that_fails_halfway_is_seen_in_no_part_and_can_come_again(self) -> None:
        """One of the staged files can't be read. Whoever has brought the rows in by then does not need it."""
        sink = self.fenced()
        staged = stage(self.folder, words(1, 2, 3, 4))
        token = self.prepare(sink, step(0), staged)
        path = Path(staged.staged.url) / staged.staged.files[1].name
        away = path.rename(path.with_suffix(".away"))
        try:
            sink.commit(step(0), token, staged)
        except Exception:  # noqa: BLE001 - whatever a reader of files that are gone raises
            assert self.seen() == []
            marker = self.handle().look()
            assert marker is not None
            assert marker.at == NOTHING
        away.rename(path)
        sink.commit(step(0), token, staged)
        assert self.seen() == [(1, "w1"), (2, "w2"), (3, "w3"), (4, "w4")]

    # ---- fencing ----

    @pytest.mark.parametrize("paused", ["commit", "take-over"])
    def test_a_commit_and_a_take_over_at_once_are_one_after_the_other(self, paused: str) -> None:
        """One is paused at line after line of the sink's own code, while the other goes through or waits for it."""
        points, expected = [-1], 0
        for race in range(self.races + 1):
            old, new = self.fenced(2 * race), self.handle()
            to, staged = step(expected, 2 * race), stage(self.folder, words(expected))
            token = self.prepare(old, to, staged)
            acts: dict[str, Callable[[], Any]] = {
                "commit": partial(_landed, old, to, token, staged),
                "take-over": partial(self._take_over, new, 2 * race + 1),
            }
            pause, first = Pause(old, points[race]), acts.pop(paused)
            with ThreadPoolExecutor(1) as pool:
                under_way = pool.submit(pause.within, first)
                pause.arrived.wait()
                ended = {other: act() for other, act in acts.items()}
                pause.go_on.set()
            ended[paused] = under_way.result()
            landed, (marker, seen) = ended["commit"], ended["take-over"]
            expected = marker.at.epoch + 1
            where = f"{paused} paused at {pause.where}"
            assert landed == (marker.at == to.after), f"the fence found otherwise, with the {where}"
            assert seen == self.seen(), f"rows came in after the fence, with the {where}"
            assert seen == [(epoch, f"w{epoch}") for epoch in range(expected)], where
            if race == 0:
                points += [pause.lines * number // self.races for number in range(self.races)]

    def _take_over(self, sink: Sink, generation: int) -> tuple[Marker, list[tuple[int, str]]]:
        """What the fence finds, and what is to be seen from then on."""
        return sink.fence(holder(generation), NOTHING), self.seen()

    def test_a_stale_holder_commits_nothing(self) -> None:
        zombie = self.fenced(0)
        staged = stage(self.folder, words(1))
        token = self.prepare(zombie, step(0), staged)
        self.fenced(1)
        with pytest.raises(Fenced):
            zombie.commit(step(0), token, staged)
        assert self.seen() == []

    def test_a_stale_holder_commits_nothing_after_the_new_one_has(self) -> None:
        zombie = self.fenced(0)
        staged = stage(self.folder, words(1))
        token = self.prepare(zombie, step(0), staged)
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
                sink.commit(bad, self.prepare(sink, bad, staged), staged)
        assert self.seen() == [(1, "w1"), (2, "w2")]
        self.put(sink, step(2), words(3))
        assert self.seen() == [(1, "w1"), (2, "w2"), (3, "w3")]

    def test_the_same_epoch_of_another_timeline_is_not_taken_for_the_one_that_is_held(self) -> None:
        self.put(self.fenced(0), step(0), words(1))
        taker = self.fenced(1)
        staged = stage(self.folder, words(2))
        with pytest.raises(ChainBroken):
            taker.commit(step(0, 1), self.prepare(taker, step(0, 1), staged), staged)
        assert self.seen() == [(1, "w1")]

    # ---- bad input ----

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_a_name_of_a_column_is_taken_or_refused_before_the_decision(self, name: str) -> None:
        sink = self.fenced()
        odd = stage(self.folder, [{**words(1)[0], name: 7}], SCHEMA.append(pa.field(name, pa.int64())))
        try:
            token = self.prepare(sink, step(0), odd)
        except SinkUnfit:
            assert self.seen() == []
            self.put(sink, step(0), words(1))
        else:
            sink.commit(step(0), token, odd)
        assert self.seen() == [(1, "w1")]

    def test_another_column_is_refused_before_anything_is_written(self) -> None:
        if not self.has_columns:
            return
        sink = self.fenced()
        self.put(sink, step(0), words(1))
        other = SCHEMA.append(pa.field("more", pa.int64()))
        with pytest.raises(SinkUnfit):
            self.handle().check(other)
        with pytest.raises(SinkUnfit):
            self.prepare(sink, step(1), stage(self.folder, [{**words(2)[0], "more": 1}], other))
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
            self.prepare(sink, step(1), stage(self.folder, [{"id": "one", "word": "w", "seen": None}], other))
        assert self.seen() == [(1, "w1")]

    def test_a_key_that_the_rows_do_not_have_is_refused(self) -> None:
        for mode in self.only("upsert"):
            sink = self.open(mode, ["nowhere"])
            self._open.append(sink)
            with pytest.raises(SinkUnfit):
                sink.check(SCHEMA)


def _landed(sink: Sink, to: Step, token: Any, rows: StagedRows) -> bool:
    try:
        sink.commit(to, token, rows)
    except Fenced:
        return False
    return True
