"""One sidecar over real directories and a real receiver: what it tells, what it tells once, and what stops nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Repository
from holdfast.config import read_config
from holdfast.sidecar import Sidecar
from holdfast.sidecar.events import AlertChanged, Done, Event, NotTaken, NotYetOurs, Undone
from holdfast.sidecar.receivers import Webhook
from holdfast.spark.watch import Captured, Ended, Failed
from holdfast.spark.watch_each import find_directories
from holdfast.store import Directory
from sidecar.receiving import Inbox, until
from spark.directories import MadeDirectory

HEAD = """
[watch]
every = "1 batch"
quiet = "300ms"
[alerts]
look = "100ms"
{alerts}
[alerts.to.chat]
webhook = "{url}/hook"
timeout = "1s"
"""


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.sidecar.sidecar.TICK", 0.05)
    monkeypatch.setattr("holdfast.sidecar.telling.LOOK_AGAIN", 0.1)
    monkeypatch.setattr("holdfast.sidecar.sidecar.FIRST_RETRY", 0.1)
    monkeypatch.setattr("holdfast.sidecar.sidecar.NOT_THERE_YET", 0.1)
    monkeypatch.setattr("holdfast.spark.watch.FIRST_RETRY", 0.1)


class Cluster:
    """A repository, directories of made queries, a file, and the sidecars that run by it."""

    def __init__(self, root: Path, inbox: Inbox) -> None:
        self.root = root
        self.inbox = inbox
        self.repository: Repository = holdfast.open(str(root / "repository"), create=True)
        self.events: list[tuple[str, Event]] = []
        self.file = root / "holdfast.toml"
        self.reach: list[Mapping[str, Any]] = []

    def query(self, name: str, batches: int = 3, operators: int = 1) -> MadeDirectory:
        made = MadeDirectory(self.root / "ck" / name, operators=operators)
        for _ in range(batches):
            made.batch()
        return made

    def write(self, *tables: str, alerts: str = "") -> None:
        self.file.write_text(HEAD.format(alerts=alerts, url=self.inbox.url) + "\n".join(tables))

    def watched(self, *names: str) -> str:
        return "".join(f'[pipelines.{name}]\ndirectory = "{self.root}/ck/{name}"\n' for name in names)

    @contextmanager
    def running(self) -> Iterator[list[tuple[str, Event]]]:
        """A sidecar in a thread; gives what it tells."""
        told: list[tuple[str, Event]] = []

        def tell(pipeline: str, event: Event) -> None:
            told.append((pipeline, event))
            self.events.append((pipeline, event))

        def ask(_pipeline: str, _code: str) -> Sequence[Mapping[str, Any]]:
            return self.reach

        sidecar = Sidecar(read_config(self.file), self.repository, self.file, tell=tell, ask=ask)
        stop, failed = threading.Event(), []

        def run() -> None:
            try:
                sidecar.run(stop)
            except BaseException as error:
                failed.append(error)
                raise

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield told
        finally:
            stop.set()
            thread.join(60)
            assert not thread.is_alive()
            assert not failed

    def captured(self, pipeline: str) -> list[int]:
        return [e.taken.manifest.epoch for name, e in self.events if name == pipeline and isinstance(e, Captured)]

    def until_told(self, *messages: str) -> None:
        until(lambda: self.inbox.told() == list(messages), lambda: (self.inbox.told(), self.events[-5:]))

    def pack_of(self, pipeline: str) -> Path:
        return next((self.root / "repository" / "pipelines" / pipeline / "data").rglob("pack-0"))


@pytest.fixture
def cluster(tmp_path: Path, inbox: Inbox) -> Cluster:
    return Cluster(tmp_path, inbox)


def flip(file: Path, at: int = 10) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


# ---- copies and drills ----


def test_every_pipeline_is_copied_and_drilled_on_its_schedule_and_that_is_remembered(cluster: Cluster) -> None:
    made = [cluster.query(name, operators=0) for name in ("orders", "clicks")]
    other = holdfast.open(str(cluster.root / "other"), create=True)
    copies = '[copies.vault]\nurl = "other"\nevery = "200ms"\n[drill]\nevery = "1h"\nscratch = "."'
    cluster.write(cluster.watched("orders", "clicks"), copies)

    def level() -> bool:
        """Whether the other repository holds the newest batch that was captured of each."""
        newest = [other.pipeline(name).latest() for name in ("orders", "clicks") if other.pipeline(name).exists()]
        return [found.epoch for found in newest if found] == [each.next_batch - 1 for each in made]

    with cluster.running() as told:
        until(level, lambda: told)
        until(lambda: sum(isinstance(e, Done) and e.kind == "drill" for _, e in told) == 2, lambda: told)
        for each in made:
            each.batch()
        until(level, lambda: told)
        assert {event.kind for _, event in told if isinstance(event, Done)} == {"copy to vault", "drill"}
    made[0].batch()
    with cluster.running() as again:
        until(level, lambda: again)
    assert not [event for _, event in again if isinstance(event, Done) and event.kind == "drill"], "done an hour ago"


def test_a_copy_that_keeps_failing_is_told_once_and_stops_nothing(cluster: Cluster) -> None:
    cluster.query("orders")
    cluster.write(cluster.watched("orders"), '[copies.vault]\nurl = "other"\nevery = "200ms"')
    with cluster.running() as told:
        cluster.until_told("firing upkeep/orders/copy to vault")
        assert "is not a Holdfast repository" in cluster.inbox.taken[0]["summary"]
        assert cluster.captured("orders")
        holdfast.open(str(cluster.root / "other"), create=True)
        cluster.until_told("firing upkeep/orders/copy to vault", "resolved upkeep/orders/copy to vault")
    assert [event.kind for _, event in told if isinstance(event, Done)] == ["copy to vault"]


# ---- the alerts ----


def test_a_checkpoint_that_is_too_old_is_told_once_and_that_it_is_over_once(cluster: Cluster) -> None:
    made = cluster.query("orders")
    cluster.write(cluster.watched("orders"), alerts='checkpoint_age = "2s"')
    with cluster.running():
        cluster.until_told("firing checkpoint-age/orders")
        message = cluster.inbox.taken[0]
        assert (message["rule"], message["pipeline"]) == ("checkpoint-age", "orders")
        assert message["repository"] == cluster.repository.url
        assert message["summary"] in message["text"]
        until(lambda: cluster.captured("orders") == [1, 2])
        made.batch()
        made.batch()
        cluster.until_told("firing checkpoint-age/orders", "resolved checkpoint-age/orders")
    assert "hook" not in repr(cluster.events), "the address of a webhook is shown nowhere"


def test_a_capture_that_keeps_failing_is_told_and_goes_on_by_itself(cluster: Cluster) -> None:
    made = cluster.query("orders", 2)
    hidden = (made.root / "state/0/1/1.delta").rename(cluster.root / "hidden")
    cluster.write(cluster.watched("orders"), alerts="capture_failures = 2")
    with cluster.running() as told:
        cluster.until_told("firing capture/orders")
        assert "captures of orders in a row have failed" in cluster.inbox.taken[0]["summary"]
        until(lambda: sum(isinstance(event, Failed) for _, event in told) >= 3)
        assert len(cluster.inbox.taken) == 1, "not again for each"
        hidden.rename(made.root / "state/0/1/1.delta")
        cluster.until_told("firing capture/orders", "resolved capture/orders")
    assert cluster.captured("orders")


def test_a_directory_that_needs_a_person_is_told_and_the_others_go_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.spark.watch.CONFIRM", 0.1)
    monkeypatch.setattr("holdfast.spark.watch_each.SCAN", 0.5)
    holdfast.capture(cluster.query("old").root, cluster.repository, pipeline="orders")
    stranger, clicks = cluster.query("orders"), cluster.query("clicks")
    cluster.write(cluster.watched("orders", "clicks"))
    with cluster.running() as told:
        cluster.until_told("firing capture/orders")
        assert "is not captured any more" in cluster.inbox.taken[0]["summary"]
        clicks.batch()
        until(lambda: 2 in cluster.captured("clicks"))
        assert [name for name, event in told if isinstance(event, Ended)] == ["orders"], "told once"
        stranger.root.rename(cluster.root / "aside")
        (cluster.root / "ck" / "old").rename(stranger.root)
        cluster.until_told("firing capture/orders", "resolved capture/orders")


def test_a_root_that_can_not_be_looked_through_is_told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.spark.watch_each.SCAN", 0.1)
    root = cluster.root / "ck"
    root.write_text("no folder")
    cluster.write(f'[roots.lake]\ndirectory = "{root}"')
    with cluster.running():
        cluster.until_told("firing capture/roots.lake")
        root.unlink()
        cluster.until_told("firing capture/roots.lake", "resolved capture/roots.lake")


def test_damage_is_told_and_over_only_once_the_very_bytes_are_good_again(cluster: Cluster) -> None:
    cluster.query("orders")
    cluster.write(cluster.watched("orders"), '[check]\nevery = "200ms"\nread_data = 100')
    with cluster.running():
        until(lambda: cluster.captured("orders"))
        pack = cluster.pack_of("orders")
        flip(pack)
        cluster.until_told("firing damage/orders")
    cluster.write(cluster.watched("orders"), '[check]\nevery = "200ms"\nread_data = 0')
    with cluster.running() as told:
        until(lambda: sum(isinstance(event, Done) for _, event in told) >= 3)
        assert len(cluster.inbox.taken) == 1, "a check that does not read it does not clear it"
        flip(pack)
        cluster.until_told("firing damage/orders", "resolved damage/orders")


@pytest.mark.parametrize("kind", ["drill", "copies.other"])
def test_damage_that_a_drill_or_a_copy_runs_into_is_told_at_once_and_over_once_it_went_well(
    cluster: Cluster, kind: str
) -> None:
    made = MadeDirectory(cluster.root / "ck" / "orders", operators=0)
    made.batch()
    made.batch()
    holdfast.capture(made.root, cluster.repository, pipeline="orders")
    holdfast.open(str(cluster.root / "other"), create=True)
    flip(cluster.pack_of("orders"))
    url = f'url = "{cluster.root}/other"' if kind != "drill" else ""
    cluster.write(f"[{kind}]", 'every = "200ms"', url, "[pipelines.orders]", alerts="capture_failures = 0")
    with cluster.running():
        cluster.until_told("firing damage/orders")
    flip(cluster.pack_of("orders"))
    with cluster.running():
        cluster.until_told("firing damage/orders", "resolved damage/orders")


@pytest.mark.parametrize("kind", ["drill", "copies.other"])
def test_damage_is_not_over_when_a_drill_or_a_copy_fails_for_another_reason_after_a_restart(
    cluster: Cluster, kind: str
) -> None:
    holdfast.capture(cluster.query("orders", operators=0).root, cluster.repository, pipeline="orders")
    holdfast.open(str(cluster.root / "other"), create=True)
    flip(cluster.pack_of("orders"))
    url = f'url = "{cluster.root}/other"' if kind != "drill" else ""

    def write(more: str = "") -> None:
        cluster.write(f"[{kind}]", 'every = "200ms"', more, url, "[pipelines.orders]", alerts="capture_failures = 0")

    write()
    with cluster.running():
        cluster.until_told("firing damage/orders")
    write('timeout = "1ms"')
    with cluster.running() as told:
        until(lambda: sum(isinstance(event, Undone) for _, event in told) >= 3, lambda: told)
        assert not [event for _, event in told if isinstance(event, AlertChanged)], "nothing was proven"
    flip(cluster.pack_of("orders"))
    write()
    with cluster.running():
        cluster.until_told("firing damage/orders", "resolved damage/orders")


def test_records_that_are_lost_are_damage_without_any_check(cluster: Cluster) -> None:
    holdfast.capture(cluster.query("orders").root, cluster.repository, pipeline="orders")
    [manifest] = (cluster.root / "repository/pipelines/orders/checkpoints").rglob("*.json")
    aside = manifest.rename(cluster.root / "aside")
    cluster.write("[pipelines.orders]")
    with cluster.running():
        cluster.until_told("firing damage/orders")
        aside.rename(manifest)
        cluster.until_told("firing damage/orders", "resolved damage/orders")


WAY: dict[str, Any] = {
    "slot": "0-0",
    "on_timeline": True,
    "savepoints": ["v1"],
    "sinks": {"table": None},
    "sources": [],
    "replay_until_ms": None,
}
ASKED = '[reach]\nevery = "100ms"\n[pipelines.orders]\ncode = "jobs:orders"'


def test_a_sink_and_a_source_that_lose_the_way_back_are_told(cluster: Cluster) -> None:
    holdfast.capture(cluster.query("orders").root, cluster.repository, pipeline="orders")
    cluster.write(ASKED, alerts='retention = "1d"')
    cluster.reach = [WAY]
    with cluster.running() as told:
        until(lambda: any(isinstance(event, Done) for _, event in told))
        cluster.reach = [{**WAY, "sinks": {"table": "vacuumed"}}]
        cluster.until_told("firing way-back/orders/table")
        cluster.reach = [{**WAY, "sources": [{"severity": "refuse", "why": "trimmed"}]}]
        cluster.until_told("firing way-back/orders/table", "resolved way-back/orders/table", "firing retention/orders")
        cluster.reach = [WAY]
        until(lambda: cluster.inbox.told()[-1] == "resolved retention/orders")


def test_what_was_told_is_not_told_again_after_a_restart(cluster: Cluster) -> None:
    cluster.write('[pipelines.orders]\ncheckpoint_age = "1ms"')
    with cluster.running():
        cluster.until_told("firing checkpoint-age/orders")
    for _ in range(2):
        with cluster.running() as told:
            time.sleep(0.5)
        assert told == []
        assert len(cluster.inbox.taken) == 1
    cluster.write()
    with cluster.running():
        cluster.until_told("firing checkpoint-age/orders", "resolved checkpoint-age/orders")


def test_what_still_holds_is_repeated_as_often_as_was_asked(cluster: Cluster) -> None:
    cluster.write("[pipelines.orders]", alerts='checkpoint_age = "1ms"\nrepeat = "300ms"')
    with cluster.running():
        until(lambda: len(cluster.inbox.taken) >= 3)
    assert [message["times"] for message in cluster.inbox.taken[:3]] == [1, 2, 3]
    assert len({message["since"] for message in cluster.inbox.taken}) == 1


# ---- what stops nothing ----


@pytest.mark.parametrize("answer", [500, "hang", "drip"])
def test_a_receiver_that_misbehaves_stops_nothing_and_is_tried_again(
    cluster: Cluster, answer: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.decide.alerts.FIRST_RETRY", 0.05)
    cluster.inbox.answer = answer
    made = cluster.query("orders")
    other = f'[alerts.to.file]\ncommand = ["sh", "-c", "cat >> {cluster.root}/told"]'
    cluster.write(cluster.watched("orders"), '[pipelines.gone]\ncheckpoint_age = "1ms"', other)
    with cluster.running() as told:
        until(lambda: (cluster.root / "told").exists(), "another receiver is told all the same")
        for batch in range(2, 6):
            made.batch()
            until(lambda batch=batch: batch in cluster.captured("orders"))
        until(lambda: cluster.inbox.asked >= 2)
        failed = [event for _, event in told if isinstance(event, NotTaken)]
        waits = [event.retry_seconds for event in failed]
        assert waits == sorted(waits)
        assert failed[0].why == ("it answered 500" if answer == 500 else "it did not answer within 1 s")
        cluster.inbox.answer = 204
        cluster.until_told("firing checkpoint-age/gone")
    assert (cluster.root / "told").read_text().count("firing") == 1


def test_words_that_neither_json_nor_the_environment_can_carry_are_told_all_the_same(cluster: Cluster) -> None:
    """The name of a file need not be text, and an error may repeat it."""
    cluster.query("orders")
    other = f'[alerts.to.file]\ncommand = ["sh", "-c", "cat >> {cluster.root}/told"]'
    cluster.write(cluster.watched("orders") + 'code = "jobs:orders"', other)
    odd = {"v\udcff1": "the file a\udcff\0b is gone"}
    cluster.reach = [
        {"savepoints": [name], "on_timeline": True, "sinks": {"table": why}, "sources": [], "replay_until_ms": None}
        for name, why in odd.items()
    ]
    with cluster.running():
        cluster.until_told("firing way-back/orders/table")
        until(lambda: (cluster.root / "told").exists())
    assert "v\\udcff1" in cluster.inbox.taken[0]["summary"]
    assert "a\\udcff\\x00b is gone" in cluster.inbox.taken[0]["summary"]


@pytest.mark.parametrize("error", [ValueError("embedded null byte"), RuntimeError("http://host/s3cret")])
def test_a_receiver_that_raises_whatever_it_likes_is_tried_again_and_told_later(
    cluster: Cluster, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.decide.alerts.FIRST_RETRY", 0.05)
    left, send = [error], Webhook.send

    def fails_once(webhook: Webhook, document: bytes, variables: Mapping[str, str]) -> None:
        if left:
            raise left.pop()
        send(webhook, document, variables)

    monkeypatch.setattr(Webhook, "send", fails_once)
    cluster.write('[pipelines.gone]\ncheckpoint_age = "1ms"')
    with cluster.running() as told:
        cluster.until_told("firing checkpoint-age/gone")
    [failed] = [event for _, event in told if isinstance(event, NotTaken)]
    assert failed.why == f"it could not be sent ({type(error).__name__})"


def test_a_sidecar_ends_although_a_receiver_hangs(cluster: Cluster) -> None:
    cluster.inbox.answer = "hang"
    cluster.write('[pipelines.gone]\ncheckpoint_age = "1ms"')
    cluster.file.write_text(cluster.file.read_text().replace('"1s"', '"10m"'))
    with cluster.running():
        until(lambda: cluster.inbox.asked == 1)


def test_of_two_sidecars_one_tells_and_the_other_takes_over(cluster: Cluster) -> None:
    made = cluster.query("orders")
    cluster.write(cluster.watched("orders"), '[pipelines.gone]\ncheckpoint_age = "1h"', alerts='checkpoint_age = "1ms"')
    with ExitStack() as first:
        first.enter_context(cluster.running())
        cluster.until_told("firing checkpoint-age/orders")
        with cluster.running() as told:
            until(lambda: any(isinstance(event, NotYetOurs) for _, event in told))
            made.batch()
            until(lambda: 2 in cluster.captured("orders"))
            first.close()
            until(lambda: len(cluster.inbox.taken) == 1)
            cluster.write(cluster.watched("orders"))
    with cluster.running():
        cluster.until_told("firing checkpoint-age/orders", "resolved checkpoint-age/orders")


# ---- upkeep ----


def test_checkpoints_that_no_rule_keeps_are_pruned_and_a_failing_prune_is_told(cluster: Cluster) -> None:
    made = cluster.query("orders")
    cluster.write(cluster.watched("orders"), '[keep]\nlast = 2\nevery = "100ms"', alerts="capture_failures = 2")
    with cluster.running() as told:
        for batch in range(3, 8):
            made.batch()
            until(lambda batch=batch: batch in cluster.captured("orders"))
        until(lambda: len(cluster.repository.pipeline("orders").checkpoints()) == 2)
        assert any(isinstance(event, Done) and event.kind == "prune" for _, event in told)
        base = next((cluster.root / "repository/pipelines/orders/generations").glob("*.base.json"))
        aside = base.rename(cluster.root / "aside")
        until(lambda: "firing upkeep/orders/prune" in cluster.inbox.told(), cluster.inbox.told)
        assert any(isinstance(event, Undone) for _, event in told)
        aside.rename(base)
        until(lambda: "resolved upkeep/orders/prune" in cluster.inbox.told(), cluster.inbox.told)


def test_all_directories_below_a_root_are_looked_after(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("team/a", "team/b"):
        cluster.query(name)
    root = f'[roots.lake]\ndirectory = "{cluster.root}/ck/team"\ncheckpoint_age = "1ms"'
    cluster.write(root, '[check]\nevery = "1h"')
    with cluster.running() as told:
        until(lambda: cluster.captured("a") and cluster.captured("b"))
        until(lambda: {name for name, event in told if isinstance(event, Done)} == {"a", "b"})
        until(lambda: sorted(cluster.inbox.told()) == ["firing checkpoint-age/a", "firing checkpoint-age/b"])

    def slowly(place: Directory) -> list[str]:
        time.sleep(1)
        return find_directories(place)

    monkeypatch.setattr("holdfast.spark.watch_each.find_directories", slowly)
    with cluster.running() as told:
        until(lambda: {"a", "b"} <= {name for name, _ in told})
        time.sleep(0.3)
    assert len(cluster.inbox.taken) == 2, "they are not given up before they are found again"
    assert not [event for _, event in told if isinstance(event, Done)], "and not checked again before an hour is over"
