"""The part of a sink's suite on going back, on rows that take the place of others, and on what is kept for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from holdfast.decide.chain import Link
from holdfast.errors import Fenced, SinksAhead, SinkUnfit
from holdfast.sinks.contract import Sink, Target, WriteMode
from holdfast.testing.sink_hands import SCHEMA, SinkHands, holder, stage, step, words

__all__ = ["WaysBack"]


class WaysBack(SinkHands):
    """One test for each promise on what was there before."""

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
                    self.prepare(sink, step(1), stage(self.folder, bad))
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
    def test_a_column_that_leaves_the_query_is_refused_or_given_back_with_its_values(self, mode: WriteMode) -> None:
        narrow = pa.schema([field for field in SCHEMA if field.name != "seen"])
        for chosen in self.only(mode) if self.rolls_back and self.has_columns else []:
            sink = self.fenced(mode=chosen)
            first = self.put(sink, step(0), words(1, 2))
            before = self.whole()
            try:
                second = self.put(sink, step(1), [{"id": 1, "word": "x1"}], narrow)
            except SinkUnfit:
                assert self.whole() == before
                continue
            self.put(sink, step(2), words(1, 3, word="y"))
            assert sink.why_not_back(second) is None
            sink.roll_back(second)
            assert (1, "x1") in self.seen()
            assert sink.why_not_back(first) is None
            sink.roll_back(first)
            assert self.whole() == before

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

    @pytest.mark.parametrize("mode", ["append", "upsert", "overwrite"])
    def test_what_it_has_written_and_put_back_itself_is_nobody_elses(self, mode: WriteMode) -> None:
        for chosen in self.only(mode) if self.rolls_back else []:
            sink = self.fenced(mode=chosen)
            targets = [self.put(sink, step(epoch), words(1, epoch + 2, word=f"{epoch}-")) for epoch in range(4)]
            assert [list(sink.foreign_since(target)) for target in targets] == [[]] * 4
            sink.roll_back(targets[2])
            assert [list(sink.foreign_since(target)) for target in targets[:3]] == [[]] * 3
            self.put(sink, step(3, offsets="other"), words(1, word="o"))
            sink.roll_back(targets[1])
            assert list(sink.foreign_since(targets[0])) == []

    @pytest.mark.parametrize("mode", ["append", "upsert", "overwrite"])
    def test_going_back_loses_what_others_changed_only_where_it_may(self, mode: WriteMode) -> None:
        for chosen in self.only(mode) if self.rolls_back else []:
            sink = self.fenced(mode=chosen)
            first = self.put(sink, step(0), words(1, 2))
            self.put(sink, step(1), words(1, 2, 3, word="x"))
            # Where it lists none, such as rows that stay whatever is taken back, there is nothing to lose.
            if not self.meddle() or not sink.foreign_since(first):
                return
            before = self.seen(), sink.look()
            with pytest.raises(SinksAhead):
                sink.roll_back(first)
            assert (self.seen(), sink.look()) == before
            sink.roll_back(first, discard_foreign=True)
            assert self.seen() == [(1, "w1"), (2, "w2")]
            sink.roll_back(first)

    @pytest.mark.parametrize("mode", ["append", "upsert", "overwrite"])
    def test_one_that_stands_back_keeps_its_rows_and_takes_the_same_epochs_again(self, mode: WriteMode) -> None:
        for chosen in self.only(mode):
            sink = self.fenced(mode=chosen)
            if type(sink).stand_at is Sink.stand_at:
                continue
            first = self.put(sink, step(0), words(1))
            self.put(sink, step(1), words(2))
            before = self.seen()
            for _ in range(2):
                sink.stand_at(first)
                assert self.seen() == before
            marker = sink.look()
            assert marker is not None
            assert marker.at == first.at
            self.put(sink, step(1, offsets="other"), words(3))
            assert set(self.seen()) == {(3, "w3")} if chosen == "overwrite" else {*before, (3, "w3")}

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

    def test_who_looks_from_another_thread_does_not_disturb_the_one_that_writes(self) -> None:
        sink = self.fenced()
        first = self.put(sink, step(0), words(0))
        over = threading.Event()
        looks: list[int] = []

        def look() -> None:
            while not over.is_set() or not looks:
                marker, why = sink.look(), sink.why_not_back(first)
                assert marker is not None
                looks.append(marker.at.epoch)
                assert not self.rolls_back or (why, list(sink.foreign_since(first))) == (None, [])
                assert all(isinstance(caution, str) for caution in sink.cautions())
                sink.hold({"a": first})

        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(look)
            try:
                for epoch in range(1, 6):
                    self.put(sink, step(epoch), words(epoch))
            finally:
                over.set()
            looking.result()
        assert looks == sorted(looks)
        assert self.seen() == [(epoch, f"w{epoch}") for epoch in range(6)]
