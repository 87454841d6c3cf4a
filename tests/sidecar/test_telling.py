"""One receiver that is kept told, over HTTP: what it refuses, and how often it is asked when it is not well."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.decide.alerts import Alert, Standing
from holdfast.sidecar.events import Event, NotTaken
from holdfast.sidecar.memory import Memory
from holdfast.sidecar.receivers import Webhook
from holdfast.sidecar.telling import Teller
from sidecar.receiving import Inbox, until


class Told:
    """A teller that runs, what holds, and what came of each message."""

    def __init__(self, folder: Path, inbox: Inbox) -> None:
        self.memory = Memory(folder / "state")
        assert self.memory.acquire()
        self.failed: list[NotTaken] = []
        self.threads: set[int] = set()
        receiver = Webhook(inbox.url, {}, 0.3)
        self.teller = Teller("chat", receiver, self.memory, repository="r", repeat_ms=None, tell=self._note)

    def _note(self, _pipeline: str, event: Event) -> None:
        self.threads.add(threading.get_ident())
        if isinstance(event, NotTaken):
            self.failed.append(event)

    def hold(self, *pipelines: str, since_ms: int = 0) -> None:
        """Have these be damaged, in this order and no others; say so."""
        alerts = [Alert("damage", name, f"{name} is damaged", "look") for name in pipelines]
        self.memory.keep_standing(
            {alert.key: Standing(alert, since_ms + number) for number, alert in enumerate(alerts)}
        )
        self.teller.poke()


@pytest.fixture
def told(tmp_path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    monkeypatch.setattr("holdfast.sidecar.telling.LOOK_AGAIN", 0.1)
    with running(Told(tmp_path, inbox)) as it:
        yield it


@contextmanager
def running(told: Told) -> Iterator[Told]:
    told.teller.start()
    try:
        yield told
    finally:
        told.teller.stop()
        told.teller.join()
        told.memory.close()


@pytest.mark.parametrize("answer", [400, 413])
def test_a_message_that_is_refused_keeps_no_other_from_its_receiver(told: Told, inbox: Inbox, answer: int) -> None:
    inbox.refused = {"damage/orders": answer}
    told.hold("orders", "clicks", "users")
    until(lambda: inbox.told() == ["firing damage/clicks", "firing damage/users"], inbox.told)
    until(lambda: len(told.failed) >= 3, lambda: told.failed)
    told.hold("orders", "clicks", "users", "views")
    until(lambda: "firing damage/views" in inbox.told(), inbox.told)
    assert {(failed.key, failed.why) for failed in told.failed} == {("damage/orders", f"it answered {answer}")}
    inbox.refused = {}
    until(lambda: "firing damage/orders" in inbox.told(), inbox.told)
    assert sorted(inbox.told()) == [f"firing damage/{name}" for name in ("clicks", "orders", "users", "views")]


def test_a_message_that_is_refused_is_asked_for_less_and_less_often(told: Told, inbox: Inbox) -> None:
    inbox.refused = {"damage/orders": 400}
    told.hold("orders")
    until(lambda: len(told.failed) == 3, lambda: told.failed)
    assert [failed.retry_seconds for failed in told.failed] == [1, 2, 4]
    # Whatever is taken in between: it is this message that is not wanted.
    told.hold("orders", "clicks")
    until(lambda: len(told.failed) == 4, lambda: told.failed)
    assert inbox.told() == ["firing damage/clicks"]
    assert told.failed[-1].retry_seconds == 8


@pytest.mark.parametrize("answer", ["hang", 500])
def test_a_receiver_that_is_not_well_is_asked_once_in_a_pause_however_much_is_due(
    told: Told, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, answer: int | str
) -> None:
    monkeypatch.setattr("holdfast.sidecar.telling.retry_seconds", lambda _failures: 1000.0)
    inbox.answer = answer
    told.hold(*(f"p{number}" for number in range(20)))
    until(lambda: told.failed)
    for number in range(20, 30):
        told.hold(*(f"p{number}" for number in range(number)))
        time.sleep(0.05)
    assert inbox.asked == 1


def test_a_receiver_that_is_not_well_is_left_alone_for_longer_each_time_and_told_all_when_it_is_back(
    told: Told, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def noted(failures: int) -> float:
        pauses.append(failures)
        return 0.05

    monkeypatch.setattr("holdfast.sidecar.telling.retry_seconds", noted)
    inbox.answer = 503
    told.hold("orders", "clicks", "users")
    until(lambda: len(told.failed) >= 6, lambda: told.failed)
    assert [failed.key for failed in told.failed[:6]] == ["damage/orders", "damage/clicks", "damage/users"] * 2
    assert max(pauses) >= 6
    inbox.answer = 204
    until(lambda: len(inbox.taken) == 3, inbox.told)


def test_an_end_that_is_refused_does_not_keep_what_began_anew_from_being_told(told: Told, inbox: Inbox) -> None:
    told.hold("orders")
    until(lambda: inbox.told() == ["firing damage/orders"])
    inbox.refused = {"resolved damage/orders": 400}
    told.hold("orders", since_ms=5)
    until(lambda: len(inbox.taken) == 2, inbox.told)
    inbox.refused = {}
    told.hold()
    until(lambda: len(inbox.taken) == 3, inbox.told)
    assert inbox.told() == ["firing damage/orders"] * 2 + ["resolved damage/orders"]
    assert inbox.taken[1]["since"] == inbox.taken[2]["since"] == "1970-01-01T00:00:00.005Z"
    assert len(told.threads) == 1
