"""A capture takes the newest whole batch, whatever the query, its clean-up and other captures do meanwhile."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import (
    BadValue,
    BrokenBatch,
    Fenced,
    NameTaken,
    NotCapturable,
    NoWholeBatch,
    OtherTimeline,
    OutcomeUnknown,
    StoreUnavailable,
)
from holdfast.handles import StoredPipeline
from holdfast.layout import Slot
from holdfast.names import ask, name_checkpoint, waiting_requests
from holdfast.records import Answer
from holdfast.repository.uploads import Limits
from holdfast.spark import capture
from holdfast.spark.capture import Capturer, NotYet, Same, Taken
from holdfast.spark.lay import lay_down
from holdfast.spark.quiet import Stillness, logs_of
from holdfast.store import open_store
from holdfast.store.contract import Buffer
from holdfast.store.local_directory import LocalDirectory
from holdfast.testing.faults import Around, Crash, CrashingStore, LateStore
from spark.directories import ROCKSDB, MadeDirectory
from spark.meddling import Meddling
from spark.replay import History, Replay, assert_all_restore


@pytest.fixture
def pipeline() -> StoredPipeline:
    return holdfast.open("memory://", create=True).pipeline("p")


@pytest.fixture
def made(tmp_path: Path) -> MadeDirectory:
    return MadeDirectory(tmp_path / "ck", provider=ROCKSDB)


def ran(made: MadeDirectory, batches: int) -> MadeDirectory:
    for _ in range(batches):
        made.batch()
    return made


def capturer(pipeline: StoredPipeline, directory: MadeDirectory | LocalDirectory, **more: object) -> Capturer:
    place = LocalDirectory(directory.root) if isinstance(directory, MadeDirectory) else directory
    return Capturer(pipeline.records, place, **more)  # type: ignore[arg-type]


def epoch_taken(outcome: Taken | Same | NotYet) -> int:
    assert isinstance(outcome, Taken), outcome
    return outcome.manifest.epoch


# ---- which batch ----


def test_the_newest_batch_that_another_has_followed_is_taken(pipeline: StoredPipeline, made: MadeDirectory) -> None:
    here = capturer(pipeline, made)
    assert here.take() == NotYet("no batch is committed")
    ran(made, 1)
    assert here.take() == NotYet("batch 0 is committed, and none has begun after it")
    made.start()
    assert epoch_taken(here.take()) == 0
    ran(made, 3)
    taken = here.take()
    assert (epoch_taken(taken), taken.committed) == (2, 3)
    again = here.take()
    assert again == Same(taken.manifest, 3)


def test_the_last_batch_is_taken_once_it_is_known_to_be_over(pipeline: StoredPipeline, made: MadeDirectory) -> None:
    ran(made, 3)
    here = capturer(pipeline, made)
    assert epoch_taken(here.take(known=2)) == 2
    ran(made, 1)
    assert isinstance(here.take(known=2), Same), "what was known to be over says nothing of the next one"


def test_only_new_files_are_read(pipeline: StoredPipeline, made: MadeDirectory) -> None:
    ran(made, 5)
    place = Meddling(made.root)
    here = capturer(pipeline, place)
    first = here.take()
    made.batch()
    place.reads.clear()
    taken = here.take()
    assert isinstance(first, Taken)
    assert isinstance(taken, Taken)
    assert sorted(set(place.reads)) == [
        "commits/4",
        "metadata",
        "offsets/3",
        "offsets/4",
        "sources/0/4",
        "state/0/0/5.changelog",
        "state/0/0/_metadata/schema",
        "state/0/1/5.changelog",
        "state/0/_metadata/metadata",
    ]
    assert taken.files_read == 5, "the rest was looked into to decide, and is the parent's"
    assert taken.files == first.files + 3, "the source, and two changelogs"
    assert taken.manifest.objects.keys() > first.manifest.objects.keys()


def test_large_files_are_streamed(pipeline: StoredPipeline, made: MadeDirectory, tmp_path: Path) -> None:
    ran(made, 2)
    here = capturer(pipeline, made, limits=Limits(inline=0, single=20))
    epoch_taken(here.take())
    assert assert_all_restore(pipeline.records, tmp_path) == [0]


def test_every_checkpoint_of_a_real_history_restores(
    pipeline: StoredPipeline, history: History, tmp_path: Path
) -> None:
    replay = Replay(history, tmp_path / "live")
    here = capturer(pipeline, LocalDirectory(replay.live))
    for batch in range(1, history.last + 1):
        replay.to(f"offsets/{batch}")
        assert epoch_taken(here.take()) == batch - 1
    assert assert_all_restore(pipeline.records, tmp_path) == list(range(history.last))


# ---- what comes in between ----


def test_a_batch_that_clean_up_overtook_gives_way_to_a_newer_one(pipeline: StoredPipeline, made: MadeDirectory) -> None:
    ran(made, 3)
    place = Meddling(made.root)

    def purge() -> None:
        ran(made, 3)
        for name in ("state/0/0/1.changelog", "state/0/1/1.changelog"):
            made.remove(name)
        made.snapshot(2)

    place.before_read("state/0/0/1.changelog", purge)
    assert epoch_taken(capturer(pipeline, place).take()) == 4


def test_clean_up_between_the_look_and_the_chain_gives_way_to_a_newer_one(
    pipeline: StoredPipeline, made: MadeDirectory
) -> None:
    ran(made, 3)
    place = Meddling(made.root)
    place.before_read("offsets/1", lambda: (ran(made, 2), made.remove("offsets/0")))
    assert epoch_taken(capturer(pipeline, place).take()) == 3


def test_a_file_that_is_replaced_while_others_are_read_is_read_again(
    pipeline: StoredPipeline, made: MadeDirectory, tmp_path: Path
) -> None:
    ran(made, 3)
    place = Meddling(made.root)
    place.before_read("state/0/1/2.changelog", lambda: made.write("state/0/0/2.changelog", b"by a retry"))
    taken = capturer(pipeline, place).take()
    assert epoch_taken(taken) == 1
    artifact = taken.manifest.files["state/0/0/2.changelog"]
    assert pipeline.checkpoints()[-1].load(artifact) == b"by a retry"
    assert place.reads.count("state/0/0/2.changelog") == 2


def test_an_attempt_in_vain_leaves_no_bytes_behind(pipeline: StoredPipeline, made: MadeDirectory) -> None:
    ran(made, 3)
    place = Meddling(made.root)
    place.before_look(2, lambda: made.write("state/0/0/2.changelog", b"by a retry, and large"))
    epoch_taken(capturer(pipeline, place, limits=Limits(inline=0, single=20)).take())
    assert place.looks == 4, "the first attempt was in vain"
    stored = {info.key for info in pipeline.records.store.list(pipeline.records.keys.data)}
    named = pipeline.checkpoints()[0].manifest.objects
    assert {key.removesuffix(".index") for key in stored} == {pipeline.records.keys.prefix + path for path in named}


def test_a_file_that_goes_once_it_was_read_is_ours(pipeline: StoredPipeline, made: MadeDirectory) -> None:
    ran(made, 3)
    place = Meddling(made.root)
    place.before_look(2, lambda: made.remove("state/0/0/1.changelog"))
    assert epoch_taken(capturer(pipeline, place).take()) == 1


def test_a_directory_that_never_holds_still_is_not_captured(pipeline: StoredPipeline, made: MadeDirectory) -> None:
    ran(made, 3)

    class Restless(Meddling):
        def read(self, name: str) -> tuple[bytes, object]:  # type: ignore[override]
            found = super().read(name)
            if name == "state/0/0/2.changelog":
                made.write(name, f"{time.monotonic_ns()}")
            return found

    assert capturer(pipeline, Restless(made.root)).take() == NotYet("the directory kept changing while it was read")
    assert pipeline.checkpoints() == []


def test_a_broken_batch_is_passed_over_and_told(pipeline: StoredPipeline, made: MadeDirectory) -> None:
    ran(made, 4)
    made.remove("state/0/1/3.changelog")
    here = capturer(pipeline, made)
    taken = here.take()
    assert epoch_taken(taken) == 1
    assert taken.broken == ("state/0/1/3.changelog: it is not there",)
    with pytest.raises(BrokenBatch) as raised:
        here.take()
    assert raised.value.epoch == 2
    ran(made, 1)
    with pytest.raises(BrokenBatch, match="batch 3"):
        here.take()
    made.snapshot(5)
    made.start()
    assert epoch_taken(here.take()) == 4, "with a snapshot the chain is whole again"


def test_a_directory_with_no_batch_that_can_be_restored_is_an_error(
    pipeline: StoredPipeline, made: MadeDirectory
) -> None:
    ran(made, 3)
    made.remove("state/0/1/1.changelog")
    with pytest.raises(BrokenBatch, match=r"batch 1: state/0/1/1\.changelog: it is not there, batch 0"):
        capturer(pipeline, made).take()
    made.remove("metadata")
    with pytest.raises(BrokenBatch, match="metadata"):
        capturer(pipeline, made).take()
    assert not pipeline.exists(), "nothing is claimed for what is not captured"


def test_what_cannot_be_captured_is_refused_and_nothing_is_written(
    pipeline: StoredPipeline, made: MadeDirectory
) -> None:
    ran(made, 2)
    for batch in (0, 1):
        made.write(f"offsets/{batch}", 'v1\n\n{"0":3}')
    with pytest.raises(NotCapturable, match="continuous"):
        capturer(pipeline, made).take()
    assert not pipeline.exists()


# ---- several at once ----


def test_another_capture_that_was_faster_is_no_error(pipeline: StoredPipeline, made: MadeDirectory) -> None:
    ran(made, 2)
    place = Meddling(made.root)
    slow, fast = capturer(pipeline, place), capturer(pipeline, made)
    epoch_taken(slow.take())
    made.batch()
    place.before_look(2, lambda: epoch_taken(fast.take()))
    outcome = slow.take()
    assert isinstance(outcome, Same)
    assert outcome.manifest.at == Slot(0, 1)


def test_two_that_begin_at_once_do_not_take_the_same_batch_twice(
    pipeline: StoredPipeline, made: MadeDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has found no checkpoint when it looked; the first one's is there when its claim stands."""
    ran(made, 3)
    first, second = capturer(pipeline, made), capturer(pipeline, made)
    cut = capture.cut_at

    def cut_while_the_first_is_faster(*arguments: Any) -> object:
        monkeypatch.setattr(capture, "cut_at", cut)
        assert isinstance(first.take(), Taken)
        return cut(*arguments)

    monkeypatch.setattr(capture, "cut_at", cut_while_the_first_is_faster)
    assert isinstance(second.take(), Same)
    assert [checkpoint.epoch for checkpoint in pipeline.checkpoints()] == [1]


def test_another_capture_that_goes_on_past_the_look_is_not_taken_for_a_rewind(
    pipeline: StoredPipeline, made: MadeDirectory
) -> None:
    ran(made, 3)
    place = Meddling(made.root)
    place.before_read("metadata", lambda: (ran(made, 3), capturer(pipeline, made).take()))
    outcome = capturer(pipeline, place).take()
    assert isinstance(outcome, Same)
    assert outcome.manifest.epoch == 4


def test_an_attach_of_the_same_query_is_joined(pipeline: StoredPipeline, made: MadeDirectory) -> None:
    here = capturer(pipeline, made)
    ran(made, 2)
    epoch_taken(here.take())
    attached = capturer(pipeline, made, always_claim=True)
    made.batch()
    assert epoch_taken(attached.take()) == 1
    assert attached.generation == 1
    made.batch()
    assert epoch_taken(here.take()) == 2
    assert here.generation == 1


def test_an_attach_that_was_taken_over_by_another_is_fenced(pipeline: StoredPipeline, made: MadeDirectory) -> None:
    ran(made, 2)
    old, new = (capturer(pipeline, made, always_claim=True) for _ in range(2))
    epoch_taken(old.take())
    made.batch()
    epoch_taken(new.take())
    made.batch()
    with pytest.raises(Fenced):
        old.take()


def test_many_at_once_take_every_epoch_at_most_once_and_all_are_whole(
    pipeline: StoredPipeline, history: History, tmp_path: Path
) -> None:
    replay = Replay(history, tmp_path / "live", retain=3)
    over = threading.Event()

    def go_on() -> set[int]:
        here = capturer(pipeline, LocalDirectory(replay.live))
        mine = set()
        while not over.is_set():
            outcome = here.take()
            if isinstance(outcome, Taken):
                mine.add(outcome.manifest.epoch)
        here.close()
        return mine

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(go_on) for _ in range(3)]
        replay.run(pace=0.03)
        over.set()
        each = [future.result() for future in running]
    epochs = assert_all_restore(pipeline.records, tmp_path)
    assert sum(map(len, each)) == len(set().union(*each)), "no epoch was reported by two"
    assert set().union(*each) == set(epochs)
    assert epochs == sorted(epochs)
    assert epochs[-1] == history.last - 1


def test_a_capture_that_dies_at_any_request_leaves_all_whole_and_the_next_goes_on(made: MadeDirectory) -> None:
    ran(made, 2)
    at, crashed = 0, True
    while crashed:
        for when in ("before", "after"):
            inner = open_store("memory://")
            pipeline = holdfast.open(inner, create=True).pipeline("p")
            if at % 2:
                capturer(pipeline, made).take()  # the second capture dies, and not the first
            request = ask(pipeline.records, "asked") if pipeline.exists() else None
            made.batch()
            dying = CrashingStore(inner, at, when)
            with contextlib.suppress(Crash):
                capturer(holdfast.open(dying).pipeline("p"), made).take()
            crashed = dying.crashed
            here = capturer(holdfast.open(inner).pipeline("p"), made)
            outcome = here.take()
            assert isinstance(outcome, Taken | Same)
            assert outcome.manifest.epoch == made.next_batch - 2
            assert holdfast.open(inner).pipeline("p").check(read_percent=100).damaged == []
            if request is not None:
                assert here.records.savepoints()["asked"].at == outcome.manifest.at
                assert here.records.read(here.records.keys.answer(request.token), Answer).refused is None
        at += 1
    assert at > 10


def test_a_checkpoint_whose_reply_was_lost_is_settled_by_the_next_capture(made: MadeDirectory) -> None:
    late = LateStore(open_store("memory://"), lambda key: "/checkpoints/" in key)
    pipeline = holdfast.open(late, create=True).pipeline("p")
    here = capturer(pipeline, ran(made, 2))
    with pytest.raises(OutcomeUnknown):
        here.take()
    late.land()
    late._delays = lambda _key: False
    outcome = here.take()
    assert isinstance(outcome, Same)
    assert [c.epoch for c in pipeline.checkpoints()] == [0]
    made.batch()
    assert epoch_taken(here.take()) == 1


# ---- whose the directory is ----


def test_a_directory_of_another_query_is_refused(pipeline: StoredPipeline, made: MadeDirectory) -> None:
    ran(made, 4)
    here = capturer(pipeline, made)
    epoch_taken(here.take())
    shutil.rmtree(made.root)
    other = ran(MadeDirectory(made.root), 6)
    for again in (here, capturer(pipeline, other)):
        with pytest.raises(OtherTimeline, match=other.query_id):
            again.take()
    assert pipeline.latest().epoch == 2


def test_a_new_timeline_begins_from_another_query_if_that_is_asked_for(
    pipeline: StoredPipeline, made: MadeDirectory, tmp_path: Path
) -> None:
    ran(made, 4)
    old = capturer(pipeline, made)
    epoch_taken(old.take())
    other = ran(MadeDirectory(tmp_path / "other"), 2)
    new = capturer(pipeline, other, new_timeline=True)
    assert epoch_taken(new.take()) == 0
    assert [c.epoch for c in pipeline.checkpoints()] == [0]
    made.batch()
    with pytest.raises(OtherTimeline, match="generation 1 took the pipeline over"):
        old.take()
    other.batch()
    assert epoch_taken(new.take()) == 1


def test_two_that_both_ask_for_a_new_timeline_do_not_fight(
    pipeline: StoredPipeline, made: MadeDirectory, tmp_path: Path
) -> None:
    one = capturer(pipeline, ran(made, 2), new_timeline=True)
    epoch_taken(one.take())
    two = capturer(pipeline, ran(MadeDirectory(tmp_path / "other"), 2), new_timeline=True)
    epoch_taken(two.take())
    made.batch()
    with pytest.raises(OtherTimeline):
        one.take()


@pytest.mark.parametrize("batches", [2, 7], ids=["and is still behind", "and went past it"])
def test_a_directory_that_was_rewound_in_place_is_refused(
    pipeline: StoredPipeline, made: MadeDirectory, batches: int
) -> None:
    ran(made, 6)
    here = capturer(pipeline, made)
    assert epoch_taken(here.take()) == 4
    made.next_batch = 1
    for batch in range(1, 6):
        made.remove(f"commits/{batch}")
        made.remove(f"offsets/{batch}")
    for _ in range(batches):
        before = made.next_batch
        made.start()
        made.write(f"offsets/{before}", (made.root / f"offsets/{before}").read_text() + " ")
        replayed = made.batch()
        made.write(f"offsets/{replayed}", (made.root / f"offsets/{replayed}").read_text() + "\n")
    for again in (here, capturer(pipeline, made)):
        with pytest.raises(OtherTimeline, match=r"its last batch is|its batch 4 is not the one"):
            again.take()
    anew = capturer(pipeline, made, new_timeline=True)
    assert epoch_taken(anew.take()) == batches - 1
    assert [c.epoch for c in pipeline.checkpoints()] == [batches - 1]
    made.batch()
    assert epoch_taken(anew.take()) == batches


def test_a_restored_directory_begins_from_its_checkpoint(
    pipeline: StoredPipeline, made: MadeDirectory, tmp_path: Path
) -> None:
    here = capturer(pipeline, ran(made, 3))
    epoch_taken(here.take())
    ran(made, 3)
    epoch_taken(here.take())
    first = pipeline.checkpoints()[0]
    lay_down(pipeline.records, first.manifest, str(tmp_path / "restored"))
    moved = MadeDirectory(tmp_path / "restored", provider=ROCKSDB, query_id=made.query_id, next_batch=2)
    stopped = capturer(pipeline, moved).take(known=1)
    assert stopped == Same(first.manifest, 1), "nothing new: and nothing is claimed for that"
    assert [g.number for g in pipeline.generations()] == [0]
    ran(moved, 2)
    there = capturer(pipeline, moved)
    assert epoch_taken(there.take()) == 2
    assert [c.epoch for c in pipeline.checkpoints()] == [1, 2]
    assert pipeline.generations()[-1].began == "at 0-0"
    made.batch()
    with pytest.raises(OtherTimeline, match="another directory"):
        here.take()


def test_a_restored_directory_with_edited_offsets_is_no_other_timeline(
    pipeline: StoredPipeline, made: MadeDirectory, tmp_path: Path
) -> None:
    epoch_taken(capturer(pipeline, ran(made, 3)).take())
    lay_down(pipeline.records, pipeline.latest().manifest, str(tmp_path / "restored"))
    moved = MadeDirectory(tmp_path / "restored", provider=ROCKSDB, query_id=made.query_id, next_batch=2)
    moved.write("offsets/1", (moved.root / "offsets/1").read_text() + "\n")
    ran(moved, 2)
    assert epoch_taken(capturer(pipeline, moved).take()) == 2


def test_the_same_query_goes_on_after_its_directory_was_away(
    pipeline: StoredPipeline, made: MadeDirectory, tmp_path: Path
) -> None:
    here = capturer(pipeline, ran(made, 3))
    epoch_taken(here.take())
    made.root.rename(tmp_path / "away")
    assert here.take() == NotYet("no batch is committed")
    (tmp_path / "away").rename(made.root)
    made.batch()
    assert epoch_taken(here.take()) == 2
    assert here.generation == 0


# ---- requests ----


def test_a_request_is_answered_by_the_next_checkpoint_or_by_the_one_that_holds_the_newest_batch(
    pipeline: StoredPipeline, made: MadeDirectory
) -> None:
    here = capturer(pipeline, ran(made, 2))
    epoch_taken(here.take())
    ask(pipeline.records, "same")
    assert isinstance(here.take(), Same)
    assert pipeline.savepoints()["same"].at == Slot(0, 0)
    ask(pipeline.records, "next")
    made.batch()
    epoch_taken(here.take())
    assert pipeline.savepoints()["next"].at == Slot(0, 1)
    assert waiting_requests(pipeline.records) == []


def test_a_request_still_waits_after_a_capture_that_failed(tmp_path: Path, made: MadeDirectory) -> None:
    class Away(Around):
        away = False

        def create(self, key: str, data: Buffer) -> bool:
            if self.away and "/data/" in key:
                raise StoreUnavailable(self.url, f"create {key}", 1.0, "away")
            return super().create(key, data)

    store = Away(open_store(str(tmp_path / "repo")))
    pipeline = holdfast.open(store, create=True).pipeline("p")
    here = capturer(pipeline, ran(made, 2))
    epoch_taken(here.take())
    request = ask(pipeline.records, "asked")
    store.away = True
    made.batch()
    with pytest.raises(StoreUnavailable):
        here.take()
    assert waiting_requests(pipeline.records) == [request]
    store.away = False
    epoch_taken(here.take())
    assert pipeline.savepoints()["asked"].at == Slot(0, 1)
    assert waiting_requests(pipeline.records) == []


def test_a_request_that_was_named_but_not_answered_gets_the_answer_that_is_true(
    pipeline: StoredPipeline, made: MadeDirectory
) -> None:
    here = capturer(pipeline, ran(made, 2))
    epoch_taken(here.take())
    request = ask(pipeline.records, "asked")
    name_checkpoint(pipeline.records, pipeline.latest().head, "asked", request.token)  # and killed before the answer
    made.batch()
    assert epoch_taken(here.take()) == 1
    answer = pipeline.records.read(pipeline.records.keys.answer(request.token), Answer)
    assert (answer.refused, answer.slot) == (None, 0)


# ---- the facade ----


@pytest.fixture
def repository(pipeline: StoredPipeline) -> holdfast.Repository:
    return pipeline.repository


def test_capture_takes_a_checkpoint_and_names_it(repository: holdfast.Repository, made: MadeDirectory) -> None:
    ran(made, 3)
    first = holdfast.capture(made.root, repository, pipeline="p", savepoint="before")
    assert (first.epoch, repository.find("p@before").slot) == (1, first.slot)
    again = holdfast.capture(made.root, repository, pipeline="p", savepoint="also")
    assert again.slot == first.slot == repository.find("p@also").slot
    last = holdfast.capture(made.root, repository, pipeline="p", stopped=True)
    assert last.epoch == 2


def test_a_name_that_is_taken_is_refused_before_any_work(repository: holdfast.Repository, made: MadeDirectory) -> None:
    ran(made, 3)
    holdfast.capture(made.root, repository, pipeline="p", savepoint="before")
    holdfast.capture(made.root, repository, pipeline="p", savepoint="before")
    before = repository.store.list("")
    with pytest.raises(NameTaken):
        holdfast.capture(made.root, repository, pipeline="p", savepoint="before", stopped=True)
    assert repository.store.list("") == before
    holdfast.capture(made.root, repository, pipeline="p", stopped=True)
    with pytest.raises(NameTaken):
        holdfast.capture(made.root, repository, pipeline="p", savepoint="before")


@pytest.mark.parametrize("more", [{}, {"stopped": True}, {"quiet": "1s"}])
def test_a_directory_without_a_whole_batch_is_told(
    repository: holdfast.Repository, tmp_path: Path, more: dict[str, object]
) -> None:
    with pytest.raises(NoWholeBatch, match="no batch is committed"):
        holdfast.capture(tmp_path / "nowhere", repository, pipeline="p", **more)  # type: ignore[arg-type]
    assert repository.pipelines() == []


def test_stopped_and_quiet_exclude_each_other(repository: holdfast.Repository, tmp_path: Path) -> None:
    with pytest.raises(BadValue):
        holdfast.capture(tmp_path, repository, pipeline="p", stopped=True, quiet="1s")


def test_quiet_waits_until_nothing_changes_and_takes_the_last_batch(
    repository: holdfast.Repository, made: MadeDirectory
) -> None:
    ran(made, 2)
    over = threading.Event()

    def keep_running() -> None:
        while not over.wait(0.1):
            made.batch()

    query = threading.Thread(target=keep_running)
    query.start()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(holdfast.capture, made.root, repository, pipeline="p", quiet="400ms")
        time.sleep(0.8)
        assert not waiting.done(), "a running query is never quiet"
        over.set()
        query.join()
        assert waiting.result().epoch == made.next_batch - 1


Change = Callable[[MadeDirectory], object]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda made: made.batch(), id="a batch"),
        pytest.param(lambda made: made.start(), id="a batch that begins"),
        pytest.param(lambda made: made.write("state/0/0/2.changelog", b"again"), id="a state file written again"),
        pytest.param(lambda made: made.remove("state/0/0/2.changelog"), id="a state file that goes"),
        pytest.param(lambda made: made.snapshot(2), id="a snapshot by the maintenance"),
    ],
)
def test_whatever_a_capture_would_need_breaks_the_quiet(made: MadeDirectory, change: Change) -> None:
    ran(made, 3)
    place = LocalDirectory(made.root)
    stillness = Stillness(place, 90)
    assert [stillness.is_over(logs_of(place), now) for now in (0, 5, 50, 94)] == [False] * 4
    change(made)
    assert [stillness.is_over(logs_of(place), now) for now in (96, 101, 150, 185)] == [False] * 4
    assert stillness.is_over(logs_of(place), 192)
