"""Taking a pipeline back with real tables: what is refused, and that nothing was touched by then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import holdfast
from holdfast import Description, SinkStatus, claim
from holdfast.claim import Reason
from holdfast.copying import copy_pipeline
from holdfast.decide.start import Known
from holdfast.decide.timeline import World, lineage, newest
from holdfast.epochs import NOTHING, Marker, Target
from holdfast.errors import ActivatedElsewhere, Fenced, NotACopy, NotActivated, SinksAhead, SinkTaken, SinkUnfit
from holdfast.layout import Slot
from holdfast.pipeline.links import LINK, encode_link, link_of_manifest
from holdfast.pipeline.takeover import Found, Taken, _Taking, take_pipeline
from holdfast.publish import Publisher
from holdfast.sinks import Delta, Parquet, SQLite
from holdfast.sinks.contract import Sink
from holdfast.testing.sinks import SCHEMA, stage, step, words


class Pipeline:
    """A pipeline with one sink that goes from checkpoint to checkpoint without Spark."""

    def __init__(self, folder: Path, sink: Sink) -> None:
        self.folder = folder
        self.sink = sink
        self.more: dict[str, Sink] = {}
        self.records = holdfast.open("memory://", create=True).pipeline("p").records

    def take(
        self, to: Slot | None, *, discard_foreign: bool = False, reach: Callable[[str], None] = lambda _step: None
    ) -> Taken:
        def find(world: World) -> Found:
            if to is None:
                return Found(Known("nothing"), None, [])
            manifest = self.records.manifest(to)
            link = link_of_manifest(manifest)
            assert link is not None
            return Found(Known("checkpoint", link), manifest, [])

        sinks = {"table": self.sink, **self.more}
        for name, sink in sinks.items():
            sink.name = name
        return take_pipeline(
            self.records, Reason("rewind"), sinks, find, rewind=True, discard_foreign=discard_foreign, reach=reach
        )

    def start(self, *, activate: bool = False, accept: Sequence[str] = ()) -> Taken:
        def find(world: World) -> Found:
            slot = newest(world)
            manifest = self.records.manifest(slot) if slot else None
            link = link_of_manifest(manifest) if manifest else None
            return Found(Known("checkpoint", link) if link else Known("nothing"), manifest, [])

        sinks = {"table": self.sink, **self.more}
        for name, sink in sinks.items():
            sink.name = name
        return take_pipeline(self.records, Reason("start"), sinks, find, activate=activate, accept=accept)

    def run(self, taken: Taken, *epochs: int) -> None:
        publisher = Publisher(self.records, taken.generation.number, taken.found.follows)
        for epoch in epochs:
            to, rows = step(epoch, taken.generation.number), stage(self.folder, words(epoch))
            position = self.sink.commit(to, self.sink.prepare(to, rows), rows)
            about = Description(
                sinks={"table": SinkStatus(status="committed")},
                sink_positions={"table": msgspec.to_builtins(Target(to.after, to.decided, position))},
                metadata={LINK: encode_link(to.after)},
            )
            publisher.publish(publisher.begin(epoch), about)
        publisher.close()


def test_a_database_goes_back_the_way_it_came_and_never_sideways(tmp_path: Path) -> None:
    sink = SQLite(tmp_path / "t.db", "words")
    pipeline = Pipeline(tmp_path, sink)
    first = pipeline.take(None)
    pipeline.run(first, 0, 1, 2, 3)
    pipeline.run(pipeline.take(Slot(first.generation.number, 1)), 2, 3, 4)
    claims = pipeline.records.world().claims
    with pytest.raises(SinksAhead, match="only go back the way that it came"):
        pipeline.take(Slot(first.generation.number, 3))
    assert pipeline.records.world().claims == claims, "nothing was claimed"
    marker = sink.look()
    assert marker is not None
    assert marker.at.epoch == 4


@pytest.mark.parametrize("epochs", [(2,), (2, 3, 4)], ids=["forward", "back"])
def test_files_with_a_log_jump_to_what_was_left(tmp_path: Path, epochs: tuple[int, ...]) -> None:
    sink = Parquet(str(tmp_path / "files"))
    pipeline = Pipeline(tmp_path, sink)
    first = pipeline.take(None)
    pipeline.run(first, 0, 1, 2, 3)
    pipeline.run(pipeline.take(Slot(first.generation.number, 1)), *epochs)
    pipeline.take(Slot(first.generation.number, 3))
    marker = sink.look()
    assert marker is not None
    assert (marker.at.epoch, marker.decided) == (3, first.generation.number)


def test_rows_that_others_bring_after_the_generation_has_begun_are_listed_and_not_lost(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    pipeline = Pipeline(tmp_path, Delta(url))
    pipeline.run(pipeline.take(None), 0, 1, 2)

    def bring(at: str) -> None:
        if at == "begun":
            write_deltalake(url, pa.Table.from_pylist(words(100), schema=SCHEMA), mode="append")

    with pytest.raises(SinksAhead, match="table: others have changed it since"):
        pipeline.take(Slot(0, 0), reach=bring)
    assert marker_of(pipeline.sink) == (1, 2, 0)
    claims = pipeline.records.world().claims
    with pytest.raises(SinksAhead, match="others have changed it since"):
        pipeline.take(Slot(0, 0))
    assert pipeline.records.world().claims == claims, "now it is known before anything is touched"
    pipeline.take(Slot(0, 0), discard_foreign=True)
    assert marker_of(pipeline.sink) == (2, 0, 0)
    assert [row["id"] for row in pa.table(DeltaTable(url).scan().read_all()).to_pylist()] == [0]


# ---- what is refused ----


def test_a_first_start_that_is_refused_leaves_no_pipeline(tmp_path: Path) -> None:
    sink = SQLite(tmp_path / "t.db", "words")
    Pipeline(tmp_path, sink).start()
    other = Pipeline(tmp_path, sink)
    with pytest.raises(SinkTaken):
        other.start()
    assert not other.records.exists()
    with pytest.raises(SinkTaken):
        other.take(None)
    assert not other.records.exists()


def test_two_first_starts_at_once_take_each_other_for_the_same_pipeline(tmp_path: Path) -> None:
    """One has looked, found no pipeline, and sleeps before it looks at its sink, which the other has fenced by then."""
    sink = SQLite(tmp_path / "t.db", "words")
    pipeline, other = Pipeline(tmp_path, sink), Pipeline(tmp_path, SQLite(tmp_path / "t.db", "words"))
    other.records = pipeline.records
    look = sink.look

    def look_late() -> Marker | None:
        sink.look = look  # type: ignore[method-assign]
        other.start()
        return look()

    sink.look = look_late  # type: ignore[method-assign]
    assert pipeline.start().generation.number == 1


@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
def test_two_sinks_on_one_target_are_found_out_however_it_is_spelled(tmp_path: Path, begun: bool) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    pipeline = Pipeline(tmp_path, SQLite(tmp_path / "t.db", "words"))
    if begun:
        pipeline.run(pipeline.start(), 0)
    pipeline.more["again"] = SQLite(tmp_path / "link" / "t.db", "words")
    with pytest.raises(SinkUnfit, match=r"sink 'again': its target .* is that of 'table' too"):
        pipeline.start()
    pipeline.more["again"] = SQLite(tmp_path / "t.db", "others")
    pipeline.start()


# ---- a copy that is activated ----


class Twice:
    """A pipeline with one sink, its repository, and a copy of that."""

    def __init__(self, folder: Path, sink: Sink) -> None:
        self.primary = Pipeline(folder, sink)
        self.copy = Pipeline(folder, sink)
        self.sink = sink

    def follow(self) -> None:
        copy_pipeline(self.primary.records.unread(), self.copy.records)

    def activate(self, *accept: str) -> Taken:
        return self.copy.start(activate=True, accept=accept)


def marker_of(sink: Sink) -> tuple[int, int, int]:
    marker = sink.look()
    assert marker is not None
    return marker.holder.generation, marker.at.epoch, marker.decided


@pytest.fixture(params=["sqlite", "parquet"])
def twice(request: pytest.FixtureRequest, tmp_path: Path) -> Twice:
    sinks = {"sqlite": lambda: SQLite(tmp_path / "t.db", "words"), "parquet": lambda: Parquet(str(tmp_path / "files"))}
    return Twice(tmp_path, sinks[request.param]())


def test_a_copy_that_is_activated_takes_the_sinks_back_to_what_was_copied_and_fences_the_original(twice: Twice) -> None:
    old = twice.primary.start()
    twice.primary.run(old, 0, 1)
    twice.follow()
    twice.primary.run(old, 2, 3)
    with pytest.raises(NotActivated):
        twice.copy.start()
    taken = twice.activate()
    assert (taken.generation.number, taken.plan.sinks["table"].rolls_back) == (1, True)
    assert marker_of(twice.sink) == (1, 1, 0)
    twice.copy.run(taken, 2)
    twice.sink._holder = old.holder
    with pytest.raises(Fenced):
        twice.primary.run(old, 4)


def test_an_original_that_is_started_over_and_over_never_counts_past_the_copy_that_took_over(twice: Twice) -> None:
    twice.primary.run(twice.primary.start(), 0, 1)
    twice.follow()
    twice.activate()
    for _ in range(3):
        with pytest.raises(ActivatedElsewhere, match="generation 1") as refused:
            twice.primary.start()
        assert refused.value.sinks == ["table"]
    assert twice.primary.records.world().claims == {0}, "nothing was claimed, so it can be copied back to"
    assert marker_of(twice.sink)[0] == 1
    copy_pipeline(twice.copy.records.unread(), twice.primary.records.unread())


def test_an_original_can_be_told_to_take_its_sinks_back_and_takes_no_row_of_the_copy_for_its_own(twice: Twice) -> None:
    first = twice.primary.start()
    twice.primary.run(first, 0)
    twice.follow()
    twice.primary.run(first, 1)
    twice.copy.run(twice.activate(), 1)
    back = ["activated-elsewhere", "unknown-generation:table"]
    if not twice.sink.can_jump:
        with pytest.raises(SinksAhead, match="not known here"):
            twice.primary.start(accept=back[:1])
    taken = twice.primary.start(accept=back)
    assert taken.plan.sinks["table"].rolls_back
    assert marker_of(twice.sink) == (2, 1, 0)


def test_an_activation_claims_on_until_it_is_above_what_the_original_has_counted_to(twice: Twice) -> None:
    twice.primary.run(twice.primary.start(), 0, 1)
    twice.follow()
    for _ in range(3):
        twice.primary.start()
    taken = twice.activate()
    assert taken.generation.number == 4
    assert taken.plan.sinks["table"].rolls_back is False, "what they end with was decided by one that is known"
    twice.copy.run(taken, 2)
    assert twice.copy.start().generation.number == 5


def test_what_a_generation_wrote_that_the_copy_does_not_know_is_not_taken_for_what_it_knows(twice: Twice) -> None:
    """Rewound at the original after the copy, and run on to the very same link, with other rows."""
    first = twice.primary.start()
    twice.primary.run(first, 0, 1, 2, 3)
    twice.follow()
    twice.primary.run(twice.primary.take(Slot(0, 1)), 2, 3)
    assert marker_of(twice.sink) == (1, 3, 1)
    if twice.sink.can_jump:
        assert twice.activate().plan.sinks["table"].rolls_back
        assert marker_of(twice.sink) == (2, 3, 0)
        return
    with pytest.raises(SinksAhead, match="generation 1, which is not known here"):
        twice.activate()
    assert twice.copy.records.world().claims == {0}, "nothing was claimed"
    taken = twice.activate("unknown-generation:table")
    assert marker_of(twice.sink) == (2, 3, 0)
    assert taken.plan.sinks["table"].rolls_back


def test_an_activation_that_was_cut_off_is_taken_up_again_by_an_activation(
    twice: Twice, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = twice.primary.start()
    twice.primary.run(first, 0, 1)
    twice.follow()
    twice.primary.run(twice.primary.start(), 2)
    with monkeypatch.context() as patch:
        patch.setattr(claim, "_begin", lambda *_: (_ for _ in ()).throw(RuntimeError("killed")))
        with pytest.raises(RuntimeError):
            twice.activate("unknown-generation:table")
    assert marker_of(twice.sink)[0] == 2
    taken = twice.activate("unknown-generation:table")
    assert (taken.generation.number, marker_of(twice.sink)) == (3, (3, 1, 0))


def test_one_killed_before_it_has_rolled_back_leaves_that_to_the_next_start(
    twice: Twice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number under which the sinks were written is void here, and was never a beginning of ours."""
    twice.primary.run(twice.primary.start(), 0, 1, 2, 3)
    twice.follow()
    twice.primary.run(twice.primary.take(Slot(0, 1)), 2, 3)
    with monkeypatch.context() as patch:
        patch.setattr(type(twice.sink), "roll_back", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("killed")))
        with pytest.raises(RuntimeError):
            twice.activate("unknown-generation:table")
    assert marker_of(twice.sink) == (2, 3, 1)
    taken = twice.copy.start(accept=("unknown-generation:table",))
    assert (taken.generation.number, marker_of(twice.sink)) == (3, (3, 3, 0))


def test_a_start_that_slept_before_its_fence_does_not_take_the_rows_of_the_copy_for_its_own(
    twice: Twice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a number above that of the copy, since another start died; the copy wrote up to the very same link."""
    first = twice.primary.start()
    twice.primary.run(first, 0)
    twice.follow()
    twice.primary.run(first, 1)
    fence = _Taking.fence

    def die(*_: object) -> None:
        raise RuntimeError("killed")

    def fence_late(self: _Taking, generation: int, token: str) -> None:
        monkeypatch.setattr(_Taking, "fence", fence)
        twice.copy.run(twice.activate(), 1)
        self.fence(generation, token)

    monkeypatch.setattr(_Taking, "fence", die)
    with pytest.raises(RuntimeError):
        twice.primary.start()
    monkeypatch.setattr(_Taking, "fence", fence_late)
    if twice.sink.can_jump:
        assert twice.primary.start().plan.sinks["table"].rolls_back
        assert marker_of(twice.sink) == (2, 1, 0)
    else:
        with pytest.raises(SinksAhead, match="not known here"):
            twice.primary.start()


@pytest.mark.parametrize("activate", [False, True], ids=["started", "activated"])
def test_a_sink_that_is_new_begins_where_the_state_stands(twice: Twice, tmp_path: Path, activate: bool) -> None:
    twice.primary.run(twice.primary.start(), 0, 1)
    twice.follow()
    new = SQLite(tmp_path / "new.db", "words")
    pipeline = twice.copy if activate else twice.primary
    pipeline.more["new"] = new
    taken = pipeline.start(activate=activate)
    assert taken.plan.sinks["new"].begins is False, "it has begun"
    assert marker_of(new) == (1, 1, 1)
    assert pipeline.start().generation.number == 2


def test_only_a_copy_can_be_activated(twice: Twice) -> None:
    with pytest.raises(NotACopy):
        twice.activate()
    twice.primary.run(twice.primary.start(), 0)
    with pytest.raises(NotACopy):
        twice.primary.start(activate=True)
    twice.follow()
    twice.activate()
    with pytest.raises(NotACopy):
        twice.activate()


# ---- a sink that nobody knows ----


@pytest.mark.parametrize("kind", [Parquet, Delta])
def test_a_sink_that_was_added_goes_back_to_where_it_began_though_no_checkpoint_and_no_decision_knows_it(
    tmp_path: Path, kind: type[Parquet] | type[Delta]
) -> None:
    pipeline = Pipeline(tmp_path, kind(str(tmp_path / "a")))
    pipeline.run(pipeline.start(), 0, 1, 2)
    pipeline.more["b"] = added = kind(str(tmp_path / "b"))
    generation = pipeline.start().generation.number
    for sink in (pipeline.sink, added):
        rows, to = stage(tmp_path, words(3)), step(3, generation)
        sink.commit(to, sink.prepare(to, rows), rows)
    # The directory is lost with its ledger, and no checkpoint was taken since.
    taken = pipeline.start()
    assert {name: held.at.at.epoch for name, held in taken.sinks.items()} == {"table": 2, "b": 2}
    assert {name: marker.at.epoch for name, sink in pipeline.more.items() if (marker := sink.look())} == {"b": 2}


@pytest.mark.parametrize("kind", [Parquet, Delta])
def test_a_sink_that_began_in_a_later_generation_goes_back_to_nothing(
    tmp_path: Path, kind: type[Parquet] | type[Delta]
) -> None:
    pipeline = Pipeline(tmp_path, kind(str(tmp_path / "a")))
    pipeline.records.ensure_identity()
    claim.take_over(pipeline.records, Reason("start"), lambda: claim.Begin(None, -1, None, ""), lambda _g, _t: None)
    generation = pipeline.start().generation.number
    rows, to = stage(tmp_path, words(0)), step(0, generation)
    pipeline.sink.commit(to, pipeline.sink.prepare(to, rows), rows)
    pipeline.start()
    marker = pipeline.sink.look()
    assert marker is not None
    assert marker.at == NOTHING


def test_a_free_start_in_a_directory_keeps_what_was_decided_in_it_on_the_timeline(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, Parquet(str(tmp_path / "a")))
    pipeline.run(pipeline.start(), 0, 1, 2)
    generation = pipeline.start().generation.number
    rows, to = stage(tmp_path, words(3)), step(3, generation)
    pipeline.sink.commit(to, pipeline.sink.prepare(to, rows), rows)

    def find(world: World) -> Found:
        slot = newest(world)
        assert slot is not None
        return Found(Known("warm", to.after), pipeline.records.manifest(slot), [])

    for rewind in (True, False, True):
        sinks = {"table": pipeline.sink}
        taken = take_pipeline(pipeline.records, Reason("start"), sinks, find, rewind=rewind)
        assert taken.sinks["table"].at.at.epoch == 3
        assert [g for g, _, _ in lineage(pipeline.records.world())][1] == taken.generation.number - 1
