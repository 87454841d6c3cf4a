"""Tell one receiver what holds and what is over: in a thread of its own, so that one that hangs holds up nothing."""

from __future__ import annotations

import threading
import time

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
        failures = 0
        while not self._stop.is_set():
            self._news.wait(LOOK_AGAIN)
            self._news.clear()
            for message in due(self._memory.told(self._name), self._memory.standing(), now_ms(), self._repeat_ms):
                if self._stop.is_set():
                    return
                taken = self._send(message, failures)
                failures = 0 if taken else failures + 1
                if not taken:
                    # What is due may be another message by then.
                    self._stop.wait(retry_seconds(failures))
                    self._news.set()
                    break

    def _send(self, message: Message, failures: int) -> bool:
        status, key = message.status, message.alert.key
        try:
            document = document_of(message, self._repository, now_ms())
            self._receiver.send(msgspec.json.encode(document), variables_of(document))
        except Exception as error:  # noqa: BLE001 - whatever it is, this thread must live: the receiver has no other
            # The text of another error may repeat an address.
            why = str(error) if isinstance(error, Refused) else f"it could not be sent ({type(error).__name__})"
            self._tell(message.alert.pipeline, NotTaken(self._name, status, key, why, retry_seconds(failures + 1)))
            return False
        self._memory.record(self._name, message, now_ms())
        self._tell(message.alert.pipeline, Taken(self._name, status, key))
        return True
