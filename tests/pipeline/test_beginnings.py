"""Where a pipeline's state may come from: another pipeline's checkpoint, a plain query's directory, a healed one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.errors import DirectoryTaken, MissingRecords, PipelineExists, QueryChanged, SinkTaken
from holdfast.pipeline.origins import Forked
from holdfast.pipeline.pipeline import Pipeline
from pipeline.place import Place


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    return Place(tmp_path, spark)


def fork(place: Place) -> Pipeline:
    return place.pipeline(place.sinks("-fork"), name="fork")


def test_a_fork_puts_out_what_comes_after_its_checkpoint_into_sinks_of_its_own(place: Place) -> None:
    place.inputs(6)
    place.run(every="1 batch")
    before = place.rows("log")
    forked = fork(place).fork(place.repository, of="sums", checkpoint_dir=place.root / "forked")
    assert forked.pipeline.name == "fork"
    place.inputs(12)
    place.run(fork(place), place.root / "forked")
    assert place.rows("log") == before
    assert sorted(before + place.rows("log", "-fork")) == place.plain([(6, 1), (12, 1)])
    assert place.rows("log", "-fork") == place.rows("table", "-fork")


def test_a_fork_outlives_the_pipeline_that_it_was_made_from(place: Place) -> None:
    place.inputs(6)
    place.run(every="1 batch")
    before = place.rows("log")
    fork(place).fork(place.repository, of="sums", checkpoint_dir=place.root / "forked")
    stored = place.repository.pipeline("sums").records
    stored.store.delete([info.key for info in stored.store.list(stored.keys.prefix)])
    place.inputs(8)
    place.run(fork(place), place.root / "elsewhere")
    assert sorted(before + place.rows("log", "-fork")) == place.plain([(6, 1), (8, 1)])


def test_a_fork_that_was_killed_before_its_checkpoint_is_no_fresh_start_and_can_be_done_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.inputs(6)
    place.run(every="1 batch")
    before = place.rows("log")

    def die(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Forked, "lay", die)
        with pytest.raises(KeyboardInterrupt):
            fork(place).fork(place.repository, of="sums", checkpoint_dir=place.root / "forked")
    with pytest.raises(MissingRecords, match="fork of sums"):
        place.run(fork(place), place.root / "forked")
    fork(place).fork(place.repository, of="sums", checkpoint_dir=place.root / "forked")
    place.inputs(8)
    place.run(fork(place), place.root / "forked")
    assert sorted(before + place.rows("log", "-fork")) == place.plain([(6, 1), (8, 1)])


def test_a_fork_is_refused_sinks_of_another_pipeline_and_a_name_that_has_checkpoints(place: Place) -> None:
    place.inputs(3)
    place.run(every="1 batch")
    rows = place.rows("log")
    with pytest.raises(SinkTaken):
        place.pipeline(name="fork").fork(place.repository, of="sums", checkpoint_dir=place.root / "forked")
    with pytest.raises(PipelineExists):
        place.pipeline(place.sinks("-fork")).fork(place.repository, of="sums", checkpoint_dir=place.root / "forked")
    assert place.rows("log") == rows


def test_a_fork_of_another_query_is_refused_until_the_change_is_accepted_by_name(place: Place) -> None:
    place.inputs(3)
    place.run(every="1 batch")
    plain = place.pipeline()
    other = Pipeline(
        "fork",
        sources=plain.sources,
        query=lambda events: plain.query(events.where("value > 3")),
        sinks=place.sinks("-fork"),
    )
    with pytest.raises(QueryChanged, match="filter") as refused:
        other.fork(place.repository, of="sums", checkpoint_dir=place.root / "forked")
    assert not place.repository.pipeline("fork").records.world().bases
    other.fork(place.repository, of="sums", checkpoint_dir=place.root / "forked", accept=refused.value.names)


def damaged(place: Place, pattern: str) -> Path:
    """The newest file of the newest directory that fits."""
    directory = max(place.home.glob("run-*"))
    found = (path for path in directory.glob(pattern) if path.name[0].isdecimal())
    return max(found, key=lambda path: int(path.name.partition(".")[0].partition("_")[0]))


def test_a_directory_that_lacks_a_file_is_healed_and_gone_on_in(place: Place) -> None:
    place.inputs(6)
    place.run(every="1 batch")
    damaged(place, "state/0/0/*.changelog").unlink()
    place.inputs(9)
    assert place.start().recovery.state == "healed"
    assert place.rows("log") == place.rows("table") == place.plain([(6, 1), (9, 1)])


def test_a_directory_with_a_flipped_bit_is_healed_once_a_run_in_it_has_failed(place: Place) -> None:
    """All state is read only where there is a reason to doubt it: the second start after one that committed nothing."""
    place.inputs(6)
    place.run(every="1 batch")
    victim = damaged(place, "state/0/0/*.changelog")
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    for sidecar in victim.parent.glob(f".{victim.name}*.crc"):
        sidecar.unlink()
    place.inputs(9)
    states = []
    for _ in range(3):
        try:
            states.append(place.start().recovery.state)
            break
        except Exception as error:  # noqa: BLE001 - whatever Spark says of it
            states.append(type(error).__name__)
    assert states[-1] == "healed"
    assert len(states) == 2
    assert place.rows("log") == place.rows("table") == place.plain([(6, 1), (9, 1)])


def test_a_directory_that_no_checkpoint_can_heal_is_left_for_a_restored_one(place: Place) -> None:
    """Only the first epoch was captured: what is damaged came later, and is not in it."""
    place.inputs(1)
    place.run(every="1 batch")
    first = place.repository.pipeline("sums").latest()
    assert first is not None
    place.inputs(6)
    place.run(every="1 batch")
    for manifest in (place.root / "repository/pipelines/sums/checkpoints").rglob("*.json"):
        checkpoint = f"{int(manifest.parent.name)}-{int(manifest.stem)}"
        if checkpoint != str(first.slot):
            manifest.unlink()
    left = max(place.home.glob("run-*"))
    damaged(place, "state/0/0/*.changelog").unlink()
    place.inputs(9)
    run = place.start()
    assert (run.recovery.state, run.recovery.epoch) == ("checkpoint", first.epoch)
    assert max(place.home.glob("run-*")) != left
    assert place.rows("log") == place.rows("table") == place.plain([(1, 1), (6, 1), (9, 1)])


def test_a_folder_of_another_pipeline_is_refused_though_the_names_are_the_same(place: Place) -> None:
    place.inputs(2)
    place.run()
    known = {path: path.stat().st_mtime_ns for path in (place.root / "table.db", place.home / "owner.json")}
    place.repository = holdfast.open(str(place.root / "other-repository"), create=True)
    with pytest.raises(DirectoryTaken, match=r"sums \("):
        place.run(place.pipeline(place.sinks("-other")))
    assert not place.repository.pipeline("sums").generations()
    assert known == {path: path.stat().st_mtime_ns for path in known}
    place.run(place.pipeline(place.sinks("-other")), place.root / "home-of-its-own")
    assert place.rows("log", "-other") == place.rows("log")
