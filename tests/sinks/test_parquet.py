"""Parquet files with a log: the contract on disk and in S3, and what is this sink's own."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.decide.chain import NOTHING
from holdfast.epochs import Target
from holdfast.errors import DamagedArtifact, Fenced, MissingRecords, SinkUnavailable, SinkUnfit, UnsafeStore
from holdfast.sinks.contract import Sink, WriteMode
from holdfast.sinks.parquet import Parquet, files, versions
from holdfast.sinks.staged import StagedRows, encode_schema
from holdfast.store import Address, open_store
from holdfast.testing.sinks import SCHEMA, SinkContract, holder, stage, step, words
from servers import AzureServer, S3Server
from sinks.killing import kill_at_each_step, kill_at_random, overtake_at_each_step
from sinks.table_driver import truth


def read_all(url: str, options: Mapping[str, str] | None = None, version: int | None = None) -> list[dict[str, Any]]:
    """The rows as a reader has them that takes a list of files."""
    store = open_store(url, options)
    found: list[dict[str, Any]] = []
    for file in files(url, options=options, version=version):
        key = file[file.index("hf-") :]
        found += pq.read_table(pa.BufferReader(store.get(key))).to_pylist()
    return found


class TestParquetOnDisk(SinkContract):
    modes = ("append", "overwrite")
    races = 10

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.url = str(tmp_path / "table")

    def open(self, mode: WriteMode, key: Sequence[str]) -> Sink:
        return Parquet(self.url, mode=mode)

    def read(self) -> Iterable[dict[str, Any]]:
        return read_all(self.url)


class TestParquetInS3(SinkContract):
    modes = ("append", "overwrite")
    races = 4

    @pytest.fixture(autouse=True)
    def _place(self, s3_server: S3Server, s3_url: str) -> None:
        self.url, self.options = s3_url, s3_server.options

    def open(self, mode: WriteMode, key: Sequence[str]) -> Sink:
        return Parquet(self.url, mode=mode, options=self.options)

    def read(self) -> Iterable[dict[str, Any]]:
        return read_all(self.url, self.options)


# ---- reading ----


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def put(sink: Sink, folder: Path, epoch: int, *ids: int, decided: int = 0, word: str = "w", **how: Any) -> Target:
    to = step(epoch, decided, **how)
    staged = stage(folder, words(*ids, word=word))
    return Target(to.after, decided, sink.commit(to, sink.prepare(to, staged), staged))


def fenced(url: str, generation: int = 0, mode: WriteMode = "append") -> Parquet:
    sink = Parquet(url, mode=mode)
    sink.fence(holder(generation), NOTHING)
    return sink


def ids(url: str, version: int | None = None) -> list[int]:
    return sorted(row["id"] for row in read_all(url, version=version))


def folders(url: str) -> list[str]:
    return sorted(path.name for path in Path(url).glob("hf-*"))


def below(url: str, rows: StagedRows, name: str) -> StagedRows:
    """The same rows, staged in the folder of an attempt below a root."""
    place = Path(url) / name
    place.mkdir(parents=True)
    for file in rows.staged.files:
        (place / file.name).write_bytes(rows.place.store().get(file.name))
    return StagedRows(rows.staged, Address(str(place)))


def test_duckdb_and_pyarrow_read_the_list_of_files(url: str, tmp_path: Path) -> None:
    sink = fenced(url)
    put(sink, tmp_path, 0, 1, 2)
    put(sink, tmp_path, 1, 3)
    query = f"SELECT id, word FROM read_parquet({files(url)}) ORDER BY id"
    assert duckdb.sql(query).fetchall() == [(1, "w1"), (2, "w2"), (3, "w3")]
    table = pa.concat_tables([pq.read_table(file) for file in files(url)])
    assert sorted(table["id"].to_pylist()) == [1, 2, 3]


def test_every_version_that_is_kept_can_be_read(url: str, tmp_path: Path) -> None:
    sink = fenced(url)
    assert files(url) == []
    for epoch in range(3):
        put(sink, tmp_path, epoch, epoch)
    assert [(found.epoch, found.what) for found in versions(url)] == [
        (-1, "fence"),
        (0, "commit"),
        (1, "commit"),
        (2, "commit"),
    ]
    assert ids(url, version=2) == [0, 1]
    with pytest.raises(MissingRecords):
        files(url, version=9)


def test_a_reader_sees_each_epoch_whole_or_not_at_all(url: str, tmp_path: Path) -> None:
    sink = fenced(url)
    over = threading.Event()

    def watch() -> list[int]:
        seen = []
        while not over.is_set():
            seen.append(len(read_all(url)))
        return seen

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        for epoch in range(30):
            put(sink, tmp_path, epoch, *range(10 * epoch, 10 * epoch + 10))
        over.set()
        seen = watching.result()
    assert all(count % 10 == 0 for count in seen)
    assert seen == sorted(seen)


def test_reading_costs_the_same_after_many_epochs(url: str, tmp_path: Path) -> None:
    sink = fenced(url)
    for epoch in range(65):
        put(sink, tmp_path, epoch, epoch)
    log = Path(url) / "_holdfast/log"
    for record in sorted(log.iterdir())[:60]:
        record.write_bytes(b"never read again")
    assert ids(url) == [*range(65)]
    assert Parquet(url).look() is not None


# ---- files ----


def test_rows_that_were_staged_below_the_root_are_taken_as_they_are(url: str, tmp_path: Path) -> None:
    sink = fenced(url)
    staged = below(url, stage(tmp_path, words(1, 2)), "hf-0-0-abc123")
    token = sink.prepare(step(0), staged)
    assert files(url) == []
    sink.abort(token)
    sink.commit(step(0), sink.prepare(step(0), staged), staged)
    assert ids(url) == [1, 2]
    assert folders(url) == ["hf-0-0-abc123"]


def test_files_of_dead_attempts_are_swept_by_a_later_generation(url: str, tmp_path: Path) -> None:
    dead = fenced(url)
    put(dead, tmp_path, 0, 1)
    dead.prepare(step(1), stage(tmp_path, words(7)))
    below(url, stage(tmp_path, words(8)), "hf-0-1-0dead0")
    kept = [Path(url) / name / "file" for name in ("_hf-0-1-aa", ".hf-0-1-aa", "hf-x", "hf-0-1-nothex", "hf-5-1-aa")]
    for path in kept:
        path.parent.mkdir()
        path.touch()
    taker = fenced(url, 1)
    put(taker, tmp_path, 1, 2, decided=1)
    assert ids(url) == [1, 2]
    assert all(path.exists() for path in kept)
    assert len([name for name in folders(url) if name.startswith("hf-0-")]) == 2  # of epoch 0, and hf-0-1-nothex


def test_what_was_decided_and_not_yet_committed_is_not_swept(url: str, tmp_path: Path) -> None:
    dead = fenced(url)
    staged = [below(url, stage(tmp_path, words(epoch)), f"hf-0-{epoch}-abc") for epoch in range(3)]
    tokens = [dead.prepare(step(epoch), rows) for epoch, rows in enumerate(staged)]
    taker = fenced(url, 1)
    put(taker, tmp_path, 0, 10, decided=1)
    taker.commit(step(1), tokens[1], staged[1])
    put(taker, tmp_path, 2, 12, decided=1)
    assert ids(url) == [1, 10, 12]
    assert [name for name in folders(url) if name.startswith("hf-0-")] == ["hf-0-1-abc"]


def test_a_copy_that_went_missing_is_made_again_from_the_staged_rows(url: str, tmp_path: Path) -> None:
    sink = fenced(url)
    staged = stage(tmp_path, words(1))
    token = sink.prepare(step(0), staged)
    taker = fenced(url, 1)
    taker.abort(token)
    taker.commit(step(0), token, staged)
    assert ids(url) == [1]


def test_a_staged_file_that_went_missing_is_never_named(url: str, tmp_path: Path) -> None:
    dead = fenced(url)
    staged = [below(url, stage(tmp_path, words(epoch)), f"hf-0-{epoch}-abc") for epoch in range(2)]
    tokens = [dead.prepare(step(epoch), rows) for epoch, rows in enumerate(staged)]
    taker = fenced(url, 1)
    put_below = below(url, stage(tmp_path, words(10)), "hf-1-0-abc")
    taker.commit(step(0, 1), taker.prepare(step(0, 1), put_below), put_below)
    Path(staged[1].place.url, staged[1].staged.files[0].name).unlink()
    with pytest.raises(DamagedArtifact):
        taker.commit(step(1), tokens[1], staged[1])
    assert ids(url) == [10]


def test_a_staged_file_that_is_not_whole_is_told_before_the_decision(url: str, tmp_path: Path) -> None:
    sink = fenced(url)
    staged = stage(tmp_path, words(1, 2, 3))
    path = Path(staged.place.url) / staged.staged.files[0].name
    whole = path.read_bytes()
    for harm in (whole[:-9], whole[:40] + b"x" * (len(whole) - 40)):
        path.write_bytes(harm)
        with pytest.raises(DamagedArtifact):
            sink.prepare(step(0), staged)
    assert folders(url) == []


def test_rows_that_were_not_staged_as_the_query_says_are_refused(url: str, tmp_path: Path) -> None:
    sink = fenced(url)
    other = stage(tmp_path, [{"id": 1, "word": 1, "seen": None}], SCHEMA.set(1, pa.field("word", pa.int32())))
    claimed = msgspec.structs.replace(other.staged, arrow_schema=encode_schema(SCHEMA))
    with pytest.raises(SinkUnfit, match="word is int32"):
        sink.prepare(step(0), StagedRows(claimed, other.place))
    assert folders(url) == []


# ---- fencing ----


def test_of_two_handles_that_try_at_once_one_lands(url: str, tmp_path: Path) -> None:
    for epoch in range(10):
        handles = [Parquet(url), Parquet(url)]
        for sink in handles:
            sink.fence(holder(0), NOTHING)
        staged = stage(tmp_path, words(epoch))
        tokens = [sink.prepare(step(epoch), staged) for sink in handles]
        barrier = threading.Barrier(2)

        def go(
            sink: Sink, token: Any, epoch: int = epoch, staged: StagedRows = staged, gate: threading.Barrier = barrier
        ) -> Any:
            gate.wait()
            return sink.commit(step(epoch), token, staged)

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(go, handles, tokens)
        assert first == second
    assert ids(url) == [*range(10)]


@pytest.mark.parametrize("verb", ["commit", "roll back", "release", "fence"])
def test_a_take_over_before_any_request_lets_nothing_of_the_old_one_in(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Each request of a driver in turn is held back until another one has taken over and committed an epoch."""
    for number in range(100):
        place = f"{url}-{number}"
        zombie = fenced(place, mode="overwrite")
        targets = [put(zombie, tmp_path, epoch, epoch) for epoch in range(3)]
        staged = stage(tmp_path, words(9))
        token = zombie.prepare(step(3), staged)
        store, requests, taken = zombie._files.store, itertools.count(), []

        def hold(
            call: Any,
            *given: Any,
            number: int = number,
            place: str = place,
            requests: Iterator[int] = requests,
            taken: list[int] = taken,
            **named: Any,
        ) -> Any:
            if next(requests) == number:
                taker = Parquet(place, mode="overwrite")
                at = taker.fence(holder(1), NOTHING).at.epoch
                put(taker, tmp_path, at + 1, 100, decided=1)
                taken.append(at)
            return call(*given, **named)

        with monkeypatch.context() as patched:
            for name in ("create", "get", "list", "delete", "put", "folders", "get_ranges"):
                patched.setattr(store, name, partial(hold, getattr(store, name)))
            try:
                if verb == "commit":
                    zombie.commit(step(3), token, staged)
                elif verb == "roll back":
                    zombie.roll_back(targets[0])
                elif verb == "release":
                    zombie.release(targets[2].at)
                else:
                    zombie.fence(holder(0), NOTHING)
                stopped = False
            except Fenced:
                stopped = True
        if not taken:
            break
        assert ids(place) == [100]
        # Only what was done before the take-over has happened: then its taker has seen it.
        assert stopped or {"commit": 3, "roll back": 0}.get(verb, taken[0]) == taken[0]
    assert number > 1


def test_a_log_that_is_gone_is_not_a_new_table(url: str, tmp_path: Path) -> None:
    put(fenced(url), tmp_path, 0, 1)
    for path in [*(Path(url) / "_holdfast").rglob("*.json")]:
        path.unlink()
    with pytest.raises(MissingRecords, match="its log is gone"):
        fenced(url, 1)


def test_a_record_that_is_gone_is_told(url: str, tmp_path: Path) -> None:
    sink = fenced(url)
    for epoch in range(3):
        put(sink, tmp_path, epoch, epoch)
    (Path(url) / "_holdfast/log/0000000002.json").unlink()
    with pytest.raises(MissingRecords, match="gap"):
        files(url)


def test_a_store_that_lets_two_writers_create_one_object_is_refused(bad_s3_server: S3Server) -> None:
    sink = Parquet(bad_s3_server.url(f"t-{uuid.uuid4().hex}"), options=bad_s3_server.options)
    with pytest.raises(UnsafeStore):
        sink.fence(holder(0), NOTHING)


def test_a_store_that_can_not_be_reached_is_told(tmp_path: Path, url: str) -> None:
    (tmp_path / "table").write_text("a file where the folder should be")
    with pytest.raises(SinkUnavailable):
        fenced(url)


def test_no_secret_is_shown(s3_server: S3Server) -> None:
    sink = Parquet("s3://bucket/table?secret_access_key=hidden", options={"access_key_id": "hidden"})
    assert "hidden" not in f"{sink.target} {sink!r} {sink.root!r}"


# ---- going back ----


def test_it_jumps_to_a_timeline_that_was_left(url: str, tmp_path: Path) -> None:
    sink = fenced(url)
    first = put(sink, tmp_path, 0, 1)
    left = put(sink, tmp_path, 1, 2)
    sink.roll_back(first)
    put(sink, tmp_path, 1, 3, offsets="other")
    assert ids(url) == [1, 3]
    assert sink.why_not_back(left) is None
    sink.roll_back(left)
    assert ids(url) == [1, 2]


def test_a_version_is_found_without_its_position(url: str, tmp_path: Path) -> None:
    sink = fenced(url)
    for epoch in range(5):
        put(sink, tmp_path, epoch, epoch)
    sink.roll_back(Target(step(2).after, 0))
    assert ids(url) == [0, 1, 2]


def test_what_was_released_is_gone_and_told(url: str, tmp_path: Path) -> None:
    sink = fenced(url, mode="overwrite")
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(30)]
    assert len(folders(url)) == 30
    sink.release(targets[25].at)
    assert len(folders(url)) == 5
    assert ids(url) == [29]
    assert "kept no more" in (sink.why_not_back(targets[24]) or "")
    with pytest.raises(SinkUnfit, match="kept no more"):
        sink.roll_back(targets[24])
    sink.release(targets[25].at)
    assert sink.why_not_back(targets[25]) is None
    sink.roll_back(targets[25])
    assert ids(url) == [25]
    assert len(list((Path(url) / "_holdfast/log").iterdir())) < 12


def test_a_version_whose_files_were_taken_away_is_told(url: str, tmp_path: Path) -> None:
    sink = fenced(url, mode="overwrite")
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(3)]
    assert sink.why_not_back(targets[1]) is None
    for name in files(url, version=targets[1].position["version"]):
        Path(name.removeprefix("file://")).unlink()
    assert "files of version" in (sink.why_not_back(targets[1]) or "")
    assert sink.why_not_back(targets[0]) is None


def test_a_release_that_was_cut_off_is_finished_by_the_next(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = fenced(url, mode="overwrite")
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(6)]
    with monkeypatch.context() as patched:
        patched.setattr(sink, "_remove_released", lambda _state: None)
        sink.release(targets[4].at)
    assert len(folders(url)) == 6
    assert "kept no more" in (sink.why_not_back(targets[1]) or "")
    sink.release(targets[4].at)
    assert len(folders(url)) == 2


def test_a_later_epoch_of_a_timeline_that_was_left_is_not_released(url: str, tmp_path: Path) -> None:
    sink = fenced(url, mode="overwrite")
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(4)]
    sink.roll_back(targets[0])
    put(sink, tmp_path, 1, 11, offsets="other 1")
    now = put(sink, tmp_path, 2, 12, before="other 1")
    sink.release(now.at)
    assert sink.why_not_back(targets[3]) is None
    assert "kept no more" in (sink.why_not_back(targets[1]) or "")


# ---- elsewhere ----


def test_it_works_in_azure(azure_server: AzureServer, tmp_path: Path) -> None:
    place = azure_server.url(f"t-{uuid.uuid4().hex}")
    sink = Parquet(place, options=azure_server.options)
    sink.fence(holder(0), NOTHING)
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(3)]
    assert sorted(row["id"] for row in read_all(place, azure_server.options)) == [0, 1, 2]
    sink.roll_back(targets[0])
    sink.release(targets[0].at)
    assert [row["id"] for row in read_all(place, azure_server.options)] == [0]


def test_files_in_the_same_store_are_copied_there(s3_server: S3Server, tmp_path: Path) -> None:
    staged = stage(tmp_path, words(1, 2))
    place = Address(s3_server.url(f"t-{uuid.uuid4().hex}"), s3_server.options)
    for file in staged.staged.files:
        place.store().create(file.name, staged.place.store().get(file.name))
    table = s3_server.url(f"t-{uuid.uuid4().hex}")
    sink = Parquet(table, options=s3_server.options)
    sink.fence(holder(0), NOTHING)
    rows = StagedRows(staged.staged, place)
    sink.commit(step(0), sink.prepare(step(0), rows), rows)
    assert sorted(row["id"] for row in read_all(table, s3_server.options)) == [1, 2]


# ---- kills ----


def test_nothing_is_lost_or_doubled_by_a_kill_after_each_step(tmp_path: Path) -> None:
    spec = {"kind": "parquet", "url": str(tmp_path / "table")}
    kill_at_each_step(spec, tmp_path / "ledger", epochs=5)
    assert sorted((row["id"], row["word"]) for row in read_all(spec["url"])) == truth(5, "append")


def test_nothing_is_lost_or_doubled_by_kills_at_random(tmp_path: Path) -> None:
    spec = {"kind": "parquet", "url": str(tmp_path / "table"), "adopt": True}
    kill_at_random(spec, tmp_path / "ledger", seed=7, epochs=25)
    assert sorted((row["id"], row["word"]) for row in read_all(spec["url"])) == truth(25, "append")


def test_one_that_was_paused_and_overtaken_commits_nothing(tmp_path: Path) -> None:
    spec = {"kind": "parquet", "url": str(tmp_path / "table"), "adopt": True}
    overtake_at_each_step(spec, tmp_path / "ledger", epochs=6)
    assert sorted((row["id"], row["word"]) for row in read_all(spec["url"])) == truth(6, "append")
