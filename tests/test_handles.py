from __future__ import annotations

import random
import threading
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

import holdfast
from builders import (
    NAME,
    Table,
    dump,
    epochs,
    filled,
    keys,
    look,
    make_repo,
    manifest_key,
    save,
    seed_checkpoints,
    sinking,
    start,
)
from holdfast.decide.retention import KeepPolicy
from holdfast.errors import (
    BadName,
    BadReference,
    CheckpointMissing,
    MissingRecords,
    NameTaken,
    NoAnswer,
    NotActivated,
    PipelineMissing,
    RepositoryMissing,
    SinkFailed,
    StillNeeded,
)
from holdfast.handles import Repository
from holdfast.layout import Slot
from holdfast.manifest import encode_manifest
from holdfast.recovery import Demands
from holdfast.repository.uploads import Limits
from holdfast.store import open_store
from holdfast.testing.faults import CountingStore


def test_a_repository_is_opened_by_its_address(tmp_path: Path) -> None:
    with pytest.raises(RepositoryMissing):
        holdfast.open(str(tmp_path))
    made = holdfast.open(str(tmp_path), create=True)
    again = holdfast.open(str(tmp_path))
    assert made.id == again.id
    assert str(tmp_path) in repr(again)
    assert again.pipelines() == []


def test_pipelines_are_listed_by_name() -> None:
    repo = make_repo()
    for name in ("b", "a"):
        repo.pipeline(name).recover().close()
    assert [pipeline.name for pipeline in repo.pipelines()] == ["a", "b"]
    with pytest.raises(BadName):
        repo.pipeline("../x")


def test_a_missing_pipeline_is_told_with_the_names_there_are() -> None:
    repo = filled(1)
    with pytest.raises(PipelineMissing) as missing:
        repo.find("orderz")
    assert missing.value.known == [NAME]
    assert not repo.pipeline("orderz").exists()


# ---- finding ----


def rewound() -> Repository:
    """Epochs 0, 1, 2 count; epochs 2, 3 of the first run are abandoned."""
    repo = filled(4)
    look(repo)["epoch:3"].savepoint("before-rewind")
    with start(repo, demands=Demands(to=Slot(0, 1))) as run:
        save(run, 2)
    return repo


def test_references_find_what_they_say() -> None:
    repo = rewound()
    assert repo.find(NAME).slot == repo.find(f"{NAME}@latest").slot == Slot(1, 0)
    assert repo.find(f"{NAME}@epoch:1").slot == Slot(0, 1)
    assert repo.find(f"{NAME}@slot:0-3").slot == Slot(0, 3)
    assert repo.find(f"{NAME}@{repo.find(NAME).id}").slot == Slot(1, 0)


def test_an_epoch_that_ran_twice_means_the_one_that_counts() -> None:
    assert look(rewound())["epoch:2"].slot == Slot(1, 0)


def test_what_was_abandoned_is_found_by_name_id_and_slot_and_never_by_epoch_or_time() -> None:
    repo = rewound()
    abandoned = look(repo)["before-rewind"]
    assert (abandoned.slot, abandoned.counts) == (Slot(0, 3), False)
    assert look(repo)[abandoned.id].slot == Slot(0, 3)
    with pytest.raises(CheckpointMissing):
        look(repo)["epoch:3"]
    assert look(repo)["time:2999-01-01"].slot == Slot(1, 0)
    assert [c.slot for c in look(repo).checkpoints()] == [Slot(0, 0), Slot(0, 1), Slot(1, 0)]
    everything = look(repo).checkpoints(with_abandoned=True)
    assert [c.slot for c in everything if not c.counts] == [Slot(0, 2), Slot(0, 3)]


def test_the_beginning_of_an_id_is_enough_if_only_one_begins_so() -> None:
    repo = make_repo()
    seed_checkpoints(repo, 3)
    for number, name in enumerate(["0193aaaa", "0193aabb", "0193bbbb"]):
        key = manifest_key(Slot(0, number))
        plain = look(repo).records.manifest(Slot(0, number))
        repo.store.put(
            key, encode_manifest(msgspec.structs.replace(plain, checkpoint_id=f"{name}-0000-7000-8000-000000000000"))
        )
    assert look(repo)["0193b"].slot == Slot(0, 2)
    with pytest.raises(BadReference, match="2 ids begin so"):
        look(repo)["0193aa"]
    with pytest.raises(CheckpointMissing):
        look(repo)["019"]


def test_a_time_means_the_newest_that_is_not_later_in_the_order_of_the_timeline() -> None:
    """A clock that went back does not change the order."""
    repo = make_repo()
    seed_checkpoints(repo, 3)
    noon = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp() * 1000)
    for number, minutes in enumerate([0, 30, 10]):
        plain = look(repo).records.manifest(Slot(0, number))
        moved = msgspec.structs.replace(plain, timestamp_ms=noon + minutes * 60_000)
        repo.store.put(manifest_key(Slot(0, number)), encode_manifest(moved))
    assert look(repo)["time:2026-11-15T12:05"].slot == Slot(0, 0)
    assert look(repo)["time:2026-11-15T12:15"].slot == Slot(0, 2)
    assert look(repo)["time:2026-11-15T12:45"].slot == Slot(0, 2)
    with pytest.raises(CheckpointMissing):
        look(repo)["time:2026-11-15T11:00"]


@pytest.mark.parametrize("word", ["nothing", "epoch:99", "slot:9-9"])
def test_what_is_not_there_is_said_so(word: str) -> None:
    with pytest.raises(CheckpointMissing):
        look(filled(1))[word]


def test_a_pipeline_without_a_checkpoint_has_no_latest() -> None:
    repo = make_repo()
    with start(repo):
        assert look(repo).latest() is None
        with pytest.raises(CheckpointMissing, match="no checkpoint yet"):
            repo.find(NAME)


# ---- what is lost is never read as "none yet", nor as an older state ----


def test_a_lost_newest_checkpoint_is_never_replaced_by_the_one_before_it() -> None:
    repo = filled(3)
    repo.store.delete([manifest_key(Slot(0, 2))])
    for reference in (NAME, f"{NAME}@latest", f"{NAME}@epoch:2", f"{NAME}@time:2999-01-01"):
        with pytest.raises(MissingRecords, match="0-2, which the hint names"):
            repo.find(reference)
    assert repo.find(f"{NAME}@epoch:1").slot == Slot(0, 1)
    assert look(repo).missing() == ["the checkpoint 0-2, which the hint names"]


@pytest.mark.parametrize("with_hint", [True, False])
@pytest.mark.parametrize("generation", [0, 1])
def test_a_lost_beginning_is_never_read_as_none_yet_or_as_the_generation_before(
    generation: int, with_hint: bool
) -> None:
    repo = filled(3)
    if generation:
        with start(repo) as run:
            save(run, 3)
    lost = [look(repo).records.keys.base(generation)]
    repo.store.delete(lost if with_hint else [*lost, look(repo).records.keys.latest])
    for find in (lambda: look(repo).latest(), lambda: look(repo).checkpoints(), lambda: repo.find(f"{NAME}@epoch:0")):
        with pytest.raises(MissingRecords, match=f"the base of generation {generation}"):
            find()
    newest = Slot(1, 0) if generation else Slot(0, 2)
    assert look(repo)[f"slot:{newest}"].epoch == (3 if generation else 2)
    assert newest in [c.slot for c in look(repo).checkpoints(with_abandoned=True)]
    assert look(repo).missing() == [f"the base of generation {generation}, which has checkpoints"]


def test_a_savepoint_tells_that_its_checkpoint_was_there() -> None:
    repo = filled(3)
    look(repo)["epoch:2"].savepoint("v1")
    look(repo).records.put_hint(Slot(0, 1))
    repo.store.delete([manifest_key(Slot(0, 2))])
    with pytest.raises(MissingRecords, match="0-2, which the savepoint v1 names"):
        look(repo)["v1"]
    assert look(repo).missing() == ["the checkpoint 0-2, which the savepoint v1 names"]


def test_what_was_read_before_it_was_lost_is_missing_all_the_same() -> None:
    repo = filled(3)
    look(repo)["epoch:2"].savepoint("v1")
    look(repo).records.put_hint(Slot(0, 1))
    held = look(repo)
    assert held["v1"].manifest.epoch == 2
    repo.store.delete([manifest_key(Slot(0, 2))])
    assert held.missing() == ["the checkpoint 0-2, which the savepoint v1 names"]


def test_with_every_manifest_lost_there_is_no_latest_to_be_none() -> None:
    repo = filled(2)
    look(repo)["epoch:0"].savepoint("v1")
    repo.store.delete([manifest_key(Slot(0, 0)), manifest_key(Slot(0, 1)), look(repo).records.keys.latest])
    with pytest.raises(MissingRecords):
        look(repo).latest()


def test_what_was_fallen_back_over_is_not_missing_any_more() -> None:
    repo = filled(3)
    repo.store.delete([manifest_key(Slot(0, 2))])
    with start(repo) as run:
        assert [skipped.slot for skipped in run.recovered.skipped] == [Slot(0, 2)]
        assert repo.find(NAME).slot == Slot(0, 1)
        assert look(repo).missing() == []


def test_a_hint_that_lags_behind_is_no_loss() -> None:
    repo = filled(4)
    look(repo).forget(Slot(0, 0))
    look(repo).records.put_hint(Slot(0, 1))
    assert repo.find(NAME).slot == Slot(0, 3)
    assert look(repo).missing() == []


def test_now_is_a_question_to_the_running_and_no_checkpoint() -> None:
    with pytest.raises(BadReference):
        filled(1).find(f"{NAME}@now")


def test_a_savepoint_goes_before_an_id_that_begins_the_same() -> None:
    repo = filled(2)
    word = look(repo)["epoch:1"].id[:8]
    look(repo)["epoch:0"].savepoint(word)
    assert look(repo)[word].epoch == 0


def test_listing_reads_heads_only_and_once() -> None:
    store = CountingStore(open_store("memory://"))
    repo = filled(5, store)
    pipeline = look(repo)
    store.reset()
    assert epochs(pipeline) == [0, 1, 2, 3, 4]
    assert store.counts["get_ranges"] == 5
    store.reset()
    assert epochs(pipeline) == [0, 1, 2, 3, 4]
    assert store.counts["get_ranges"] == 0


def test_a_checkpoint_shows_what_it_holds() -> None:
    repo = filled(2)
    newest = look(repo).latest()
    assert newest is not None
    assert (newest.epoch, newest.bytes, list(newest.operators), newest.sources) == (1, 100, ["count"], {})
    assert repr(newest) == "<checkpoint orders@slot:0-1, epoch 1>"
    assert NAME in repr(look(repo))
    assert [c.epoch for c in look(repo)] == [0, 1]


def test_the_size_of_a_checkpoint_counts_every_part_of_it() -> None:
    repo = make_repo()
    with start(repo, limits=Limits(inline=10, single=500)) as run:
        draft = run.begin(0)
        run.save_snapshot(draft, "count", 0, b"s" * 100)
        run.save_delta(draft, "count", 0, b"d" * 50)
        run.save_snapshot(draft, "large", 0, b"l" * 1000)
        draft.save_driver_state("tiny", b"t" * 5)
        draft.save_file("log", b"f" * 30)
        run.save_manifest(draft)
        run.save_manifest(run.begin(1, carry=True))
    assert [c.bytes for c in look(repo).checkpoints()] == [1185, 1185]
    assert [c.head.bytes_new for c in look(repo).checkpoints()] == [1185, 5]


def test_generations_tell_who_claimed_and_where_it_began() -> None:
    story = [(g.number, g.claim.why, g.began) for g in look(rewound()).generations()]
    assert story == [(0, "start", "fresh"), (1, "start", "at 0-1")]
    assert "began fresh" in repr(look(rewound()).generations()[0])


def test_what_a_user_holds_says_what_it_is() -> None:
    repo = filled(4)
    with start(repo) as run:
        assert repr(run) == "<holdfast.Checkpointer of 'orders', generation 1, at 0-3>"
        assert repr(run.begin(4, carry=True)) == "<holdfast draft of 'orders', epoch 4 on 0-3, 1 artifacts>"
    plan = look(repo).prune(KeepPolicy(last=2))
    assert repr(plan) == "<holdfast.PrunePlan of 'orders': keeps 2, drops 2>"


# ---- sinks ----


def test_sinks_show_as_they_stand_now() -> None:
    repo, table, bad = make_repo(), Table(), Table()
    sinks = {"table": table, "bad": bad}
    with start(repo, sinks=sinks) as run:
        bad.failing = OSError("full")
        with pytest.raises(SinkFailed):
            save(run, 0, about=sinking(0, **sinks))
        [checkpoint] = look(repo).checkpoints()
        assert {name: sink.status for name, sink in checkpoint.sinks.items()} == {"table": "committed", "bad": "failed"}
        assert "full" in (checkpoint.sinks["bad"].why or "")
        bad.failing = None
        run.settle()
    [checkpoint] = look(repo).checkpoints()
    assert {sink.status for sink in checkpoint.sinks.values()} == {"committed"}
    assert checkpoint.manifest.sink_commit_statuses["bad"].status == "pending"
    assert checkpoint.sink_position("table") == 0


# ---- names and requests ----


def test_savepoints_and_pins_come_and_go() -> None:
    repo = filled(4)
    look(repo)["epoch:0"].savepoint("v1")
    look(repo)["epoch:1"].pin("audit")
    assert [pin.why for pin in look(repo).pins()] == ["audit"]
    look(repo).prune(KeepPolicy(last=2), dry_run=False)
    assert epochs(look(repo)) == [0, 1, 2, 3]
    look(repo).remove_savepoint("v1")
    look(repo)["epoch:1"].unpin()
    look(repo).prune(KeepPolicy(last=2), dry_run=False)
    assert epochs(look(repo)) == [2, 3]


def test_a_savepoint_on_demand_is_answered_by_whoever_runs() -> None:
    repo, stop = filled(1), threading.Event()

    def running() -> None:
        with start(repo) as run:
            epoch = 1
            while not stop.wait(0.005):
                save(run, epoch)
                epoch += 1

    thread = threading.Thread(target=running)
    thread.start()
    try:
        checkpoint = look(repo).request_savepoint("before-upgrade", timeout=30)
        with pytest.raises(NameTaken):
            look(repo).request_savepoint("before-upgrade", timeout=30)
    finally:
        stop.set()
        thread.join()
    assert look(repo)["before-upgrade"].slot == checkpoint.slot
    assert keys(repo.store, "requests/") == []


def test_a_savepoint_that_nobody_answers_is_given_up_and_leaves_nothing() -> None:
    repo = filled(1)
    with pytest.raises(NoAnswer):
        look(repo).request_savepoint("soon", timeout=0.01)
    assert keys(repo.store, "requests/") == []


# ---- looking after ----


def test_a_dry_run_shows_the_very_plan_that_apply_carries_out() -> None:
    repo = filled(6)
    before = dump(repo.store)
    plan = look(repo).prune(KeepPolicy(last=2))
    assert dump(repo.store) == before
    assert plan.apply().checkpoints == plan.drops == [Slot(0, n) for n in range(4)]


def test_what_forget_would_do_is_what_it_does() -> None:
    repo = filled(4)
    before = dump(repo.store)
    planned = look(repo).plan_forget(Slot(0, 0))
    assert dump(repo.store) == before
    assert look(repo).forget(Slot(0, 0)) == planned
    look(repo)["epoch:1"].savepoint("v1")
    for slot, why in ((Slot(0, 1), StillNeeded), (Slot(0, 3), StillNeeded), (Slot(0, 0), CheckpointMissing)):
        for act in (look(repo).plan_forget, look(repo).forget):
            with pytest.raises(why):
                act(slot)


def test_usage_adds_up() -> None:
    repo = filled(3)
    found = look(repo).usage()
    stored = {key: len(repo.store.get(key)) for key in keys(repo.store, "pipelines/")}
    held = sum(size for key, size in stored.items() if "/data/" in key or "/checkpoints/" in key)
    assert found.total == sum(stored.values()) == held + found.records
    assert held == sum(c.exclusive for c in found.checkpoints)
    assert (found.shared, found.loose) == (0, 0)


def test_state_that_lies_in_the_manifest_weighs_as_well() -> None:
    repo = make_repo()
    with start(repo, limits=Limits(inline=10_000)) as run:
        save(run, 0, {0: random.Random(0).randbytes(5000)})
    [each] = look(repo).usage().checkpoints
    assert keys(repo.store, "/data/") == []
    assert each.exclusive == len(repo.store.get(manifest_key(Slot(0, 0)))) > 5000


def test_a_copy_is_a_pipeline_to_look_at_and_not_to_change() -> None:
    source, target = filled(3), make_repo()
    source.copy_to(target, NAME)
    assert epochs(look(target)) == [0, 1, 2]
    with pytest.raises(NotActivated):
        look(target).plan_forget(Slot(0, 0))
    assert look(target).check(read_percent=100).damaged == []


def test_one_handle_serves_many_threads() -> None:
    repo = filled(8)
    pipeline = look(repo)
    seen: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: seen.append([c.epoch for c in pipeline.checkpoints()])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [list(range(8))] * 8
