"""A watch goes on whatever becomes of the query, of its directory, of the store, and of the watch itself."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.capturing import watch_directory, watch_each
from holdfast.decide.schedule import Schedule, parse_every
from holdfast.errors import BadName, BrokenBatch, NotCapturable, OtherTimeline, StoreUnavailable
from holdfast.handles import StoredPipeline
from holdfast.layout import Slot
from holdfast.spark.lay import lay_down
from holdfast.spark.watch import Captured, Ended, Event, Failed, Found, Waiting, Watcher
from holdfast.spark.watch_each import SCAN, WatchEach, find_directories, pipeline_name
from holdfast.store import Store, open_directory, open_store
from holdfast.store.local_directory import LocalDirectory
from holdfast.testing.faults import Around
from servers import S3Server
from spark.directories import ROCKSDB, MadeDirectory
from spark.replay import History, Replay, assert_all_restore
from spark.soaking import soak_chance, soak_rounds
from spark.watching import WatchProcess
from spark.workloads import WORKLOADS, run


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A watch of one directory, taken step by step."""

    def __init__(self, store: Store, root: Path, every: str = "1 batch", **more: Any) -> None:
        self.pipeline = holdfast.open(store, create=True).pipeline("p")
        self.clock = Clock()
        self.events: list[Event] = []
        self.watcher = Watcher(
            self.pipeline.records,
            LocalDirectory(root),
            parse_every(every),
            tell=lambda _pipeline, event: self.events.append(event),
            clock=self.clock,
            **more,
        )

    def step(self, seconds: float | None = None) -> list[Event]:
        """One look, after so many seconds (as the last look said, if none are given); what it told."""
        before = len(self.events)
        self.clock.now += self.watcher.pause if seconds is None else seconds
        self.retry = self.watcher.step()
        return self.events[before:]

    def steps(self, count: int, seconds: float) -> None:
        for _ in range(count):
            self.step(seconds)

    def epochs(self) -> list[int]:
        return [event.taken.manifest.epoch for event in self.events if isinstance(event, Captured)]


@pytest.fixture
def made(tmp_path: Path) -> MadeDirectory:
    return MadeDirectory(tmp_path / "ck", provider=ROCKSDB)


@pytest.fixture
def watched(made: MadeDirectory, memory_store: Store) -> Watched:
    return Watched(memory_store, made.root)


def ran(made: MadeDirectory, batches: int) -> MadeDirectory:
    for _ in range(batches):
        made.batch()
    return made


# ---- when ----


def test_a_batch_is_taken_as_soon_as_another_has_begun(watched: Watched, made: MadeDirectory) -> None:
    assert watched.step() == [Waiting("no batch is committed")]
    assert watched.step() == []
    made.batch()
    assert watched.step() == [Waiting("batch 0 is committed, and none has begun after it")]
    for epoch in range(3):
        made.start()
        [captured] = watched.step()
        assert isinstance(captured, Captured)
        assert captured.taken.manifest.epoch == epoch
        assert watched.step() == []
        made.batch()
        assert watched.step() == []
    status = watched.watcher.status()
    assert (status.captures, status.failures, status.last_error, status.ended) == (3, 0, None, False)
    assert (status.last_checkpoint, status.last_epoch, status.last_committed, status.lag) == (Slot(0, 2), 2, 3, 1)


def test_every_so_many_batches(made: MadeDirectory, memory_store: Store) -> None:
    watched = Watched(memory_store, made.root, "3 batches")
    for _ in range(11):
        made.batch()
        watched.step()
    assert watched.epochs() == [0, 3, 6, 9]


def test_every_so_many_seconds(made: MadeDirectory, memory_store: Store) -> None:
    watched = Watched(memory_store, made.root, "30s")
    assert watched.watcher.pause == 1.0
    for _ in range(40):
        made.batch()
        watched.step(5)
    assert watched.epochs() == list(range(0, 39, 6))


def test_a_watch_looks_more_often_the_more_often_it_captures(tmp_path: Path, memory_store: Store) -> None:
    def pause(every: str) -> float:
        return Watched(memory_store, tmp_path, every).watcher.pause

    assert [pause(every) for every in ("500ms", "5s", "1h", "1 batch")] == [0.2, 0.5, 1.0, 0.2]


def test_the_last_batch_is_taken_when_all_is_quiet(watched: Watched, made: MadeDirectory) -> None:
    ran(made, 3)
    watched.step()
    for _ in range(9):
        assert watched.step(10) == [], "not before 90 s have passed"
    watched.step(10)
    assert watched.epochs() == [1, 2]
    assert watched.watcher.status().lag == 0
    for _ in range(20):
        assert watched.step(10) == []
    ran(made, 2)
    assert watched.step(1) != []
    assert watched.epochs() == [1, 2, 3]


def test_quiet_comes_before_the_schedule(made: MadeDirectory, memory_store: Store) -> None:
    watched = Watched(memory_store, made.root, "100 batches", quiet_seconds=20)
    ran(made, 5)
    for _ in range(5):
        watched.step(10)
    assert watched.epochs() == [3, 4]


def test_each_run_of_a_job_on_a_schedule_ends_with_a_checkpoint_of_its_last_batch(
    made: MadeDirectory, memory_store: Store
) -> None:
    watched = Watched(memory_store, made.root, "1h", quiet_seconds=20)
    for number in range(20):
        ran(made, 1 + number % 3)
        for _ in range(5):
            watched.step(10)
        assert watched.epochs()[-1] == made.next_batch - 1


# ---- restarts, and a directory that comes and goes ----


def test_a_watch_that_is_restarted_goes_on(watched: Watched, made: MadeDirectory, memory_store: Store) -> None:
    ran(made, 3)
    watched.step()
    again = Watched(memory_store, made.root)
    [found] = again.step()
    assert isinstance(found, Found)
    assert found.manifest.epoch == 1
    ran(made, 2)
    again.step()
    assert again.epochs() == [3]
    assert again.pipeline.generations()[-1].number == 0


def test_a_directory_that_is_deleted_and_comes_back(watched: Watched, made: MadeDirectory, tmp_path: Path) -> None:
    ran(made, 3)
    watched.step()
    made.root.rename(tmp_path / "away")
    assert watched.step() == [Waiting("no batch is committed")]
    assert watched.step(100) == []
    (tmp_path / "away").rename(made.root)
    assert watched.step() == []
    ran(made, 1)
    watched.step()
    assert watched.epochs() == [1, 2]


def test_a_directory_that_is_being_deleted_does_not_pass_for_rewound(watched: Watched, made: MadeDirectory) -> None:
    ran(made, 6)
    watched.step()
    for batch in (3, 4, 5):
        made.remove(f"commits/{batch}")
    assert watched.step() == []
    shutil.rmtree(made.root)
    assert watched.step(watched.retry) == [Waiting("no batch is committed")]
    assert watched.step(100) == []


@pytest.mark.parametrize("more", [{}, {"new_timeline": True}])
def test_another_query_in_the_directory_ends_the_watch_unless_a_new_timeline_is_asked_for(
    made: MadeDirectory, memory_store: Store, more: dict[str, bool]
) -> None:
    watched = Watched(memory_store, made.root, **more)
    ran(made, 4)
    watched.step()
    shutil.rmtree(made.root)
    other = ran(MadeDirectory(made.root), 3)
    if more:
        watched.step()
        assert watched.epochs() == [2, 1]
        assert [c.epoch for c in watched.pipeline.checkpoints()] == [1]
        return
    assert watched.step() == []
    with pytest.raises(OtherTimeline, match=other.query_id):
        watched.step(watched.retry)
    [ended] = [event for event in watched.events if isinstance(event, Ended)]
    assert isinstance(ended.error, OtherTimeline)
    status = watched.watcher.status()
    assert (status.ended, status.last_error) == (True, str(ended.error))


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_another_query_is_noticed_however_few_batches_it_runs(
    watched: Watched, made: MadeDirectory, batches: int
) -> None:
    ran(made, 3)
    watched.step()
    shutil.rmtree(made.root)
    ran(MadeDirectory(made.root), batches)
    with pytest.raises(OtherTimeline):
        watched.steps(20, 10)


def test_what_cannot_be_captured_ends_the_watch(watched: Watched, made: MadeDirectory) -> None:
    ran(made, 2)
    for batch in (0, 1):
        made.write(f"offsets/{batch}", 'v1\n\n{"0":3}')
    watched.step()
    with pytest.raises(NotCapturable):
        watched.step(watched.retry)
    assert not watched.pipeline.exists()


def test_a_restored_directory_is_followed_from_its_checkpoint(
    watched: Watched, made: MadeDirectory, memory_store: Store, tmp_path: Path
) -> None:
    for _ in range(4):
        ran(made, 2)
        watched.step()
    old = watched.pipeline.checkpoints()[1]
    lay_down(watched.pipeline.records, old.manifest, str(tmp_path / "restored"))
    moved = MadeDirectory(tmp_path / "restored", provider=ROCKSDB, query_id=made.query_id, next_batch=old.epoch + 1)
    there = Watched(memory_store, moved.root)
    ran(moved, 2)
    there.step()
    assert [c.epoch for c in there.pipeline.checkpoints()] == [0, old.epoch, old.epoch + 1]
    made.batch()
    watched.step()
    with pytest.raises(OtherTimeline, match="another directory"):
        watched.step(watched.retry)


# ---- failures ----


class Unreliable(Around):
    """Fails every operation while it is away."""

    away = False

    def _around(self, verb: str, act: Callable[[], Any]) -> Any:
        if self.away:
            raise StoreUnavailable(self.url, verb, 1.0, "away")
        return act()


def test_a_store_that_is_away_is_waited_for(made: MadeDirectory, memory_store: Store) -> None:
    store = Unreliable(memory_store)
    watched = Watched(store, made.root)
    ran(made, 2)
    watched.step()
    ran(made, 2)
    store.away = True
    waits = []
    for _ in range(8):
        [failed] = watched.step(5)
        assert isinstance(failed, Failed)
        waits.append(failed.retry_seconds)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    store.away = False
    watched.step()
    assert watched.epochs() == [0, 2]
    status = watched.watcher.status()
    assert (status.captures, status.failures, status.lag) == (2, 8, 1)
    assert "away" in str(status.last_error)
    store.away = True
    ran(made, 1)
    [failed] = watched.step(5)
    assert isinstance(failed, Failed)
    assert failed.retry_seconds == 1, "a success begins the waits anew"


def test_a_broken_batch_is_told_and_the_watch_moves_on(watched: Watched, made: MadeDirectory) -> None:
    ran(made, 4)
    made.remove("state/0/1/3.changelog")
    [captured] = watched.step()
    assert isinstance(captured, Captured)
    assert (captured.taken.manifest.epoch, len(captured.taken.broken)) == (1, 1)
    [failed] = watched.step()
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, BrokenBatch)
    ran(made, 1)
    made.snapshot()
    made.start()
    watched.step(1)
    assert watched.epochs() == [1, 4]


def test_what_nobody_thought_of_does_not_end_the_watch_either(
    watched: Watched, made: MadeDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(made, 2)
    with monkeypatch.context() as patch:
        patch.setattr(watched.watcher._capturer, "take", lambda _known: 1 / 0)
        [failed] = watched.step()
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, ZeroDivisionError)
    watched.step(1)
    assert watched.epochs() == [0]


# ---- asked from outside ----


def test_a_savepoint_is_given_on_request(watched: Watched, made: MadeDirectory) -> None:
    stop = threading.Event()
    watched.watcher._clock = time.monotonic
    ran(made, 3)
    running = threading.Thread(target=watched.watcher.run, args=(stop,))
    running.start()
    try:
        while not watched.epochs():
            time.sleep(0.01)
        named = watched.pipeline.request_savepoint("before-deploy", timeout=60)
        assert (named.epoch, named.slot) == (1, Slot(0, 0)), "the newest whole batch, though it is captured already"
        ran(made, 1)
        named = watched.pipeline.request_savepoint("after-deploy", timeout=60)
        assert named.epoch == 2
    finally:
        stop.set()
        running.join()
    assert set(watched.pipeline.savepoints()) == {"before-deploy", "after-deploy"}


# ---- a real history, played again ----


@contextmanager
def in_background(*watchers: Watcher | WatchEach) -> Iterator[None]:
    stop = threading.Event()
    with ThreadPoolExecutor(len(watchers)) as pool:
        running = [pool.submit(watcher.run, stop) for watcher in watchers]
        try:
            yield
        finally:
            stop.set()
        for future in running:
            future.result()


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


@pytest.mark.parametrize("retain", [2, 100])
def test_watches_beside_a_query_and_a_capture_take_each_epoch_once_and_all_restore(
    history: History, tmp_path: Path, retain: int
) -> None:
    repository = holdfast.open(str(tmp_path / "repo"), create=True)
    pipeline = repository.pipeline("p")
    replay = Replay(history, tmp_path / "live", retain)
    events: list[Event] = []
    watchers = [
        watch_directory(
            replay.live,
            repository,
            pipeline="p",
            every="1 batch",
            quiet="500ms",
            tell=lambda _pipeline, event: events.append(event),
        )
        for _ in range(2)
    ]
    with in_background(*watchers):
        replay.to("offsets/6")
        holdfast.capture(replay.live, repository, pipeline="p", savepoint="by-hand")
        replay.run(pace=0.05)
        wait_until(lambda: (latest := pipeline.latest()) is not None and latest.epoch == history.last)
    assert [event for event in events if isinstance(event, Failed | Ended)] == []
    told = [event.taken.manifest.epoch for event in events if isinstance(event, Captured)]
    assert len(told) == len(set(told)), "no epoch is told twice"
    epochs = assert_all_restore(pipeline.records, tmp_path)
    assert epochs == sorted(epochs)
    assert epochs[-1] == history.last, "the last batch too, once all is quiet"
    assert set(told) <= set(epochs)
    assert pipeline["by-hand"].epoch in epochs


def kill_in_rounds(history: History, root: Path, rounds: int, chance: random.Random) -> StoredPipeline:
    """Kill a watch again and again while a history is played; each time all that is published is whole."""
    repository = holdfast.open(str(root / "repo"), create=True)
    pipeline = repository.pipeline("p")
    replay = Replay(history, root / "live", retain=3)
    for _ in range(rounds):
        if replay.is_over:
            shutil.rmtree(replay.live)
            replay = Replay(history, root / "live", retain=3)
        published = len(pipeline.world().slots)
        with WatchProcess(replay.live, repository.url, root / "log", "--quiet", "400ms", "--new-timeline") as watch:
            replay.play(15)
            wait_until(lambda published=published: len(pipeline.world().slots) > published)  # type: ignore[misc]
            enough = time.monotonic() + chance.uniform(0, 0.4)
            for _ in range(25):
                if time.monotonic() < enough:
                    replay.play(1)
                    time.sleep(chance.uniform(0, 0.03))
            watch.kill()
        assert holdfast.open(str(root / "repo")).pipeline("p").check(read_percent=100).damaged == []
    return pipeline


def test_a_watch_that_is_killed_at_random_points_leaves_only_whole_checkpoints(
    history: History, tmp_path: Path
) -> None:
    pipeline = kill_in_rounds(history, tmp_path, 5, random.Random(3))
    assert len(assert_all_restore(pipeline.records, tmp_path)) >= 5


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_watch_that_is_killed_hundreds_of_times_leaves_only_whole_checkpoints(
    history: History, tmp_path: Path
) -> None:
    rounds = soak_rounds(300)
    pipeline = kill_in_rounds(history, tmp_path, rounds, soak_chance())
    assert_all_restore(pipeline.records, tmp_path)
    assert len(pipeline.world().slots) >= rounds


# ---- each below a root ----


def test_the_directories_below_a_root_are_found(tmp_path: Path) -> None:
    for name in ("orders", "team/clicks", "team/deep/er/views", ".hidden.partial"):
        MadeDirectory(tmp_path / name).batch()
    (tmp_path / "data" / "offsets").mkdir(parents=True)
    (tmp_path / "data" / "commits").mkdir()
    MadeDirectory(tmp_path / "orders" / "state" / "nested").batch()
    assert find_directories(LocalDirectory(tmp_path)) == ["orders", "team/clicks", "team/deep/er/views"]
    assert find_directories(LocalDirectory(tmp_path / "orders")) == [""]
    assert find_directories(LocalDirectory(tmp_path / "nowhere")) == []


def test_pipelines_are_named_by_their_paths() -> None:
    assert pipeline_name("file:/data", "orders") == "orders"
    assert pipeline_name("file:/data", "team/click stream/é") == "team.click_stream._"
    assert pipeline_name("s3://bucket/ck/orders?region=x", "") == "orders"
    assert pipeline_name("file:/data", ".odd") == "_odd"


class Fleet:
    """A watch of all directories below a root, taken tick by tick, with a clock that stands still."""

    def __init__(self, root: Path, store: Store) -> None:
        self.repository = holdfast.open(store, create=True)
        self.events: list[tuple[str, Event]] = []
        self.each = watch_each(
            root,
            self.repository,
            every="1 batch",
            quiet="90s",
            tell=lambda pipeline, event: self.events.append((pipeline, event)),
        )
        self.clock = self.each._clock = Clock()
        self.pool = ThreadPoolExecutor(2)

    def go_on(self, seconds: float) -> None:
        """Let so much time pass, with everything finished that falls due."""
        for _ in range(round(seconds / 0.5)):
            self.clock.now += 0.5
            for watched in self.each._watched.values():
                watched.watcher._clock = self.clock
            self.each.tick(self.pool)
            for future in [self.each._scan, *(watched.running for watched in self.each._watched.values())]:
                if future is not None:
                    future.exception()
            self.each.tick(self.pool)

    def ended(self) -> dict[str, str]:
        found = [(name, event.error.message) for name, event in self.events if isinstance(event, Ended)]
        assert len({name for name, _ in found}) == len(found), "each is told once"
        return dict(found)


@pytest.fixture
def fleet(tmp_path: Path, memory_store: Store) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path / "root", memory_store)
    yield fleet
    fleet.pool.shutdown()


def test_every_directory_is_watched_and_new_ones_are_found(fleet: Fleet, tmp_path: Path) -> None:
    made = {name: ran(MadeDirectory(tmp_path / "root" / name), 3) for name in ("orders", "team/clicks")}
    fleet.go_on(1)
    made["late"] = ran(MadeDirectory(tmp_path / "root" / "late"), 3)
    fleet.go_on(SCAN + 1)
    for each in made.values():
        ran(each, 2)
    fleet.go_on(2)
    names = [pipeline.name for pipeline in fleet.repository.pipelines()]
    assert names == ["late", "orders", "team.clicks"]
    for name in names:
        assert [c.epoch for c in fleet.repository.pipeline(name).checkpoints()] == [1, 3]
    assert {name: status.lag for name, status in fleet.each.status().items()} == dict.fromkeys(names, 1)


def test_one_bad_directory_does_not_stop_the_others_and_may_be_put_right(fleet: Fleet, tmp_path: Path) -> None:
    root = tmp_path / "root"
    good, bad = ran(MadeDirectory(root / "good"), 3), ran(MadeDirectory(root / "bad"), 3)
    broken = ran(MadeDirectory(root / "broken"), 3)
    broken.remove("state/0/0/1.delta")
    fleet.go_on(1)
    shutil.copytree(bad.root, tmp_path / "kept")
    shutil.rmtree(bad.root)
    other = ran(MadeDirectory(root / "bad"), 5)
    for _ in range(3):
        ran(good, 1)
        fleet.go_on(SCAN)
    assert [*fleet.ended()] == ["bad"]
    assert other.query_id in fleet.ended()["bad"]
    assert [c.epoch for c in fleet.repository.pipeline("good").checkpoints()] == [1, 2, 3, 4]
    assert any(name == "broken" and isinstance(event, Failed) for name, event in fleet.events)
    shutil.rmtree(bad.root)
    (tmp_path / "kept").rename(bad.root)
    ran(bad, 1)
    fleet.go_on(SCAN + 5)
    assert [c.epoch for c in fleet.repository.pipeline("bad").checkpoints()] == [1, 2]


def test_directories_of_the_same_name_are_refused_by_name(fleet: Fleet, tmp_path: Path) -> None:
    root = tmp_path / "root"
    ran(MadeDirectory(root / "one"), 3)
    ran(MadeDirectory(root / "a/b"), 3)
    ran(MadeDirectory(root / "a.b"), 3)
    ran(MadeDirectory(root / ("x" * 201)), 3)
    fleet.go_on(3 * SCAN)
    assert fleet.ended() == {
        "a.b": "pipeline 'a.b': a.b and a/b would both be called so",
        "x" * 201: BadName("pipeline", "x" * 201).message,
    }
    assert [pipeline.name for pipeline in fleet.repository.pipelines()] == ["one"]
    ran(MadeDirectory(root / "o ne"), 3)
    ran(MadeDirectory(root / "o_ne"), 3)
    fleet.go_on(SCAN + 1)
    assert "o_ne" in fleet.ended()


def test_a_directory_that_is_gone_is_let_go_of(fleet: Fleet, tmp_path: Path) -> None:
    made = ran(MadeDirectory(tmp_path / "root" / "orders"), 3)
    fleet.go_on(1)
    assert set(fleet.each.status()) == {"orders"}
    shutil.rmtree(made.root)
    fleet.go_on(SCAN + 1)
    assert fleet.each.status() == {}
    fleet.go_on(3 * SCAN)
    assert fleet.events[-2:] == [
        ("orders", Waiting("its directory is gone")),
        ("", Waiting("there is no Spark checkpoint directory below")),
    ]


def test_a_root_that_cannot_be_looked_at_is_told_and_tried_again(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file in its place")
    fleet.go_on(1)
    [(name, failed)] = fleet.events
    assert name == ""
    assert isinstance(failed, Failed)
    (tmp_path / "root").unlink()
    ran(MadeDirectory(tmp_path / "root" / "orders"), 3)
    fleet.go_on(SCAN + 1)
    assert [pipeline.name for pipeline in fleet.repository.pipelines()] == ["orders"]


def test_each_in_its_threads_ends_when_it_is_told_to(tmp_path: Path) -> None:
    repository = holdfast.open(str(tmp_path / "repo"), create=True)
    for name in ("one", "two", "three"):
        ran(MadeDirectory(tmp_path / "root" / name), 3)
    with in_background(watch_each(tmp_path / "root", repository, every=Schedule(every_events=1), quiet="300ms")):
        wait_until(lambda: [p.latest() and p.latest().epoch for p in repository.pipelines()] == [2, 2, 2])
    assert [[c.epoch for c in p.checkpoints()] for p in repository.pipelines()] == [[1, 2]] * 3


# ---- in an object store ----


class Mirrored:
    """A directory made on disk and brought into S3 file by file, as a query there would write it."""

    def __init__(self, made: MadeDirectory, store: Store) -> None:
        self.made = made
        self._store = store
        self._there: set[str] = set()

    def batch(self) -> None:
        self.made.batch()
        self.made.start()
        names = {name for name in self.made.names() if not name.rpartition("/")[2].startswith(".")}
        for name in sorted(names - self._there):
            self._store.put(name, (self.made.root / name).read_bytes())
        self._there = names


class Counted(Around):
    """Counts the requests to a repository."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.requests = 0

    def _around(self, verb: str, act: Callable[[], Any]) -> Any:
        self.requests += 1
        return act()


def test_a_directory_in_s3_is_watched_and_a_look_without_news_costs_three_listings(
    s3_server: S3Server, s3_url: str, tmp_path: Path, memory_store: Store
) -> None:
    query = Mirrored(MadeDirectory(tmp_path / "ck", provider=ROCKSDB), open_store(f"{s3_url}/ck", s3_server.options))
    counted = Counted(memory_store)
    watched = Watched(counted, tmp_path / "ck")
    directory = open_directory(f"{s3_url.replace('s3://', 's3a://')}/ck", s3_server.options)
    looks: list[str] = []
    look = directory.look
    directory.look = lambda folder="": (looks.append(folder), look(folder))[1]  # type: ignore[method-assign]
    watched.watcher = Watcher(
        watched.pipeline.records,
        directory,
        parse_every("1 batch"),
        tell=lambda _pipeline, event: watched.events.append(event),
        clock=watched.clock,
    )
    assert watched.watcher.pause == 1.0
    for _ in range(3):
        query.batch()
        watched.step()
    looks.clear()
    counted.requests = 0
    for _ in range(10):
        assert watched.step() == []
    assert looks == ["commits", "offsets"] * 10
    assert counted.requests == 10, "whether somebody asks for a savepoint"
    assert assert_all_restore(watched.pipeline.records, tmp_path) == [0, 1, 2]


def test_directories_in_s3_are_found_without_listing_what_they_hold(
    s3_server: S3Server, s3_url: str, tmp_path: Path
) -> None:
    for name in ("orders", "team/clicks"):
        store = open_store(f"{s3_url}/{name}", s3_server.options)
        query = Mirrored(MadeDirectory(tmp_path / name, provider=ROCKSDB), store)
        for _ in range(2):
            query.batch()
    root = open_directory(s3_url, s3_server.options)
    root.look = None  # type: ignore[assignment, method-assign]
    assert find_directories(root) == ["orders", "team/clicks"]
    repository = holdfast.open("memory://", create=True)
    with in_background(watch_each(s3_url, repository, every=1, options=s3_server.options)):
        wait_until(lambda: [latest_epoch(repository, p.name) for p in repository.pipelines()] == [1, 1])
    assert [pipeline.name for pipeline in repository.pipelines()] == ["orders", "team.clicks"]


# ---- beside a real query ----


def latest_epoch(repository: holdfast.Repository, name: str) -> int | None:
    pipeline = repository.pipeline(name)
    latest = pipeline.latest() if pipeline.exists() else None
    return latest.epoch if latest else None


def wait_for_epoch(repository: holdfast.Repository, epoch: int) -> None:
    wait_until(lambda: latest_epoch(repository, "p") == epoch)


def test_each_run_of_a_real_job_is_followed_to_its_last_batch(spark: SparkSession, tmp_path: Path) -> None:
    repository = holdfast.open(str(tmp_path / "repo"), create=True)
    live, inputs, window = tmp_path / "live", tmp_path / "inputs", WORKLOADS["window"]
    events: list[Event] = []
    watcher = watch_directory(
        live, repository, pipeline="p", every="1 batch", quiet="1s", tell=lambda _name, event: events.append(event)
    )
    outputs: dict[int, Any] = {}
    with in_background(watcher):
        for upto in (3, 5, 10):
            last_run = run(spark, window, "changelog-2", inputs, str(live), upto=upto)
            outputs |= last_run
            wait_for_epoch(repository, max(last_run))
    assert [event for event in events if isinstance(event, Failed | Ended)] == []
    pipeline = repository.pipeline("p")
    epochs = assert_all_restore(pipeline.records, tmp_path)
    # A restart leaves out a batch without data that would come next: so a cut of the last run, with data after it.
    cut = max(epoch for epoch in epochs if min(last_run) <= epoch < max(last_run) - 2)
    laid = lay_down(pipeline.records, pipeline[f"epoch:{cut}"].manifest, str(tmp_path / "restored"))
    rest = run(spark, window, "changelog-2", inputs, laid.destination, upto=10)
    assert rest == {epoch: rows for epoch, rows in outputs.items() if epoch > cut}


def test_a_real_query_that_retains_two_batches_is_overtaken_and_caught_up_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    repository = holdfast.open(str(tmp_path / "repo"), create=True)
    live, inputs, window = tmp_path / "live", tmp_path / "inputs", WORKLOADS["window"]
    events: list[Event] = []
    watchers = [
        watch_directory(
            live, repository, pipeline="p", every="1 batch", quiet="1s", tell=lambda _name, event: events.append(event)
        )
        for _ in range(2)
    ]
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    try:
        with in_background(*watchers):
            outputs = run(spark, window, "hdfs", inputs, str(live), upto=12)
            wait_for_epoch(repository, max(outputs))
    finally:
        spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    assert [event for event in events if isinstance(event, Failed | Ended)] == []
    pipeline = repository.pipeline("p")
    epochs = assert_all_restore(pipeline.records, tmp_path)
    cut = min(epochs)
    laid = lay_down(pipeline.records, pipeline[f"epoch:{cut}"].manifest, str(tmp_path / "restored"))
    rest = run(spark, window, "hdfs", inputs, laid.destination, upto=12)
    assert rest == {epoch: rows for epoch, rows in outputs.items() if epoch > cut}
