"""Tell one receiver what holds and what is over: in a thread of its own, so that one that hangs holds up nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from holdfast.decide.alerts import Message, due, retry_seconds
from holdfast.report.plain import iso_time
from holdfast.sidecar.events import Listener, NotTaken, Taken
from holdfast.sidecar.memory import Memory
from holdfast.sidecar.receivers import Receiver, Refused

__all__ = ["Teller", "document_of", "variables_of"]

VERSION = 1
LOOK_AGAIN = 5.0
"""A message that is to be repeated falls due without anybody saying so."""
GOODBYE = 2.0
"""How long the end of the sidecar waits for a message under way. One that is cut off is sent again."""

_Which: TypeAlias = tuple[str, str, int]
"""A message: its status, the key of its alert, and since when that holds."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def document_of(message: Message, repository: str, at_ms: int) -> dict[str, object]:
    """A message as its receiver gets it; docs/how-to/alerts.md says what each field is."""
    alert = message.alert
    said = alert.summary if message.status == "firing" else f"over: {alert.summary}"
    return {
        "version": VERSION,
        "status": message.status,
        "key": alert.key,
        "rule": alert.rule,
        "pipeline": alert.pipeline,
        "subject": alert.subject or None,
        "summary": alert.summary,
        "hint": alert.hint,
        "text": f"[holdfast] {said}",
        "repository": repository,
        "since": iso_time(message.since_ms),
        "time": iso_time(at_ms),
        "times": message.times,
    }


def variables_of(document: dict[str, object]) -> dict[str, str]:
    """The same for a program that does not read JSON: HOLDFAST_ALERT_STATUS and so on."""
    return {f"HOLDFAST_ALERT_{name.upper()}": "" if value is None else str(value) for name, value in document.items()}


class Teller:
    """Keeps one receiver told. `poke` it when something has changed; it never makes anybody wait."""

    def __init__(
        self,
        name: str,
        receiver: Receiver,
        memory: Memory,
        *,
        repository: str,
        repeat_ms: int | None,
        tell: Listener,
    ) -> None:
        self._name = name
        self._receiver = receiver
        self._memory = memory
        self._repository = repository
        self._repeat_ms = repeat_ms
        self._tell = tell
        self._patience = _Patience()
        self._stop = threading.Event()
        self._news = threading.Event()
        # A daemon: a receiver that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=f"holdfast-tell-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def poke(self) -> None:
        self._news.set()

    def stop(self) -> None:
        self._stop.set()
        self._news.set()

    def join(self) -> None:
        self._thread.join(GOODBYE)

    def _run(self) -> None:
        wait = LOOK_AGAIN
        while not self._stop.is_set():
            self._news.wait(wait)
            self._news.clear()
            wait = self._round()

    def _round(self) -> float:
        """Send what is due and may be sent; gives for how long nothing else can be, unless there is news."""
        messages = due(self._memory.told(self._name), self._memory.standing(), now_ms(), self._repeat_ms)
        self._patience.keep(messages)
        for message in sorted(messages, key=self._patience.failures):
            if self._stop.is_set():
                break
            if not self._patience.seconds(message) and not self._is_past(message):
                self._send(message)
        # What is due may be another message by then.
        return min([LOOK_AGAIN, *map(self._patience.seconds, messages)])

    def _is_past(self, message: Message) -> bool:
        """Whether it tells the end of what was told anew meanwhile: said after that, it would be taken for its end."""
        told = self._memory.told(self._name).get(message.alert.key)
        return message.status == "resolved" and (told is None or told.since_ms != message.since_ms)

    def _send(self, message: Message) -> None:
        status, key = message.status, message.alert.key
        try:
            document = document_of(message, self._repository, now_ms())
            self._receiver.send(msgspec.json.encode(document), variables_of(document))
        except Exception as error:  # noqa: BLE001 - whatever it is, this thread must live: the receiver has no other
            # The text of another error may repeat an address.
            why = str(error) if isinstance(error, Refused) else f"it could not be sent ({type(error).__name__})"
            seconds = self._patience.not_taken(message)
            self._tell(message.alert.pipeline, NotTaken(self._name, status, key, why, seconds))
            return
        self._patience.taken(message)
        self._memory.record(self._name, message, now_ms())
        self._tell(message.alert.pipeline, Taken(self._name, status, key))


class _Patience:
    """When a receiver may be asked again, and with which message.

    It can't be told whether a message was refused for what is in it or because the receiver is not well. So each
    attempt that fails makes all wait: those that were tried for longer each time, as long as nothing at all is taken,
    and those that were not for as long as different messages in a row have failed. One that is always refused then
    holds the others up for a moment, and a receiver that hangs is asked once in each pause, however much is due.
    """

    def __init__(self) -> None:
        self._tried: dict[_Which, tuple[int, float]] = {}
        """How often a message was not taken, and when it may be tried again as far as it alone is concerned."""
        self._in_a_row = 0
        self._different: set[_Which] = set()
        """What failed in a row, and how often."""
        self._failed_at = 0.0

    def keep(self, messages: Iterable[Message]) -> None:
        """Forget what is not due any more."""
        self._tried = {which: self._tried[which] for which in map(_which, messages) if which in self._tried}

    def failures(self, message: Message) -> int:
        """How often it was not taken: what was refused before comes after what was not."""
        return self._tried.get(_which(message), (0, 0.0))[0]

    def seconds(self, message: Message) -> float:
        """For how long it may not be sent."""
        tried = self._tried.get(_which(message))
        count = self._in_a_row if tried else len(self._different)
        until = self._failed_at + retry_seconds(count) if count else 0.0
        return max(0.0, max(until, tried[1] if tried else 0.0) - time.monotonic())

    def taken(self, message: Message) -> None:
        self._in_a_row = 0
        self._different.clear()
        self._tried.pop(_which(message), None)

    def not_taken(self, message: Message) -> float:
        """Gives for how long it may not be sent again."""
        which, self._failed_at = _which(message), time.monotonic()
        count = self.failures(message) + 1
        self._tried[which] = count, self._failed_at + retry_seconds(count)
        self._in_a_row += 1
        self._different.add(which)
        return retry_seconds(max(count, self._in_a_row))


def _which(message: Message) -> _Which:
    return message.status, message.alert.key, message.since_ms
