"""What a copy takes over with: the last look at its source, which is more likely gone than not, and what it missed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.common import Session
from holdfast.cli.ends import Ends
from holdfast.cli.loading import load_pipeline
from holdfast.cli.run import run_until_told
from holdfast.errors import (
    BadKey,
    Damage,
    FormatTooNew,
    KeyMissing,
    NotACopy,
    NotEncrypted,
    NotFound,
    StoreError,
    WouldDecrypt,
    WrongKey,
)
from holdfast.text import amount, clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.checkpoint import Checkpoint
    from holdfast.copying import Copied
    from holdfast.handles import Repository
    from holdfast.transcribing import Uncopied

__all__ = ["activate"]

LAST_LOOK = 5.0
"""For how many seconds the source may keep silent before it is taken for gone."""
FETCH_SECONDS = 60.0
"""How long what it still has may take, however slowly it comes."""
TELL_SECONDS = 5.0
LOOK_UP = 0.5
UNFETCHED = (StoreError, NotFound, Damage, FormatTooNew, BadKey, KeyMissing, WrongKey, NotEncrypted, WouldDecrypt)
"""What may be wrong with the source of an activation without stopping it."""


def activate(session: Session, ends: Ends, target: str, run: dict[str, Any]) -> None:
    """Take the pipeline MODULE:ATTR over in the target, and run it with these options until it is told to stop."""
    repository = ends.target_alone()
    pipeline = load_pipeline(target)
    stored = repository.pipeline(pipeline.name)
    stored.require()
    known = stored.records.generations()
    if not stored.records.began_elsewhere(known):
        raise NotACopy(pipeline.name, repository.url)
    fetched = _Fetched("it was taken over from here before, in vain")
    if stored.is_copy():
        fetched = _LastLook(session, pipeline.name).fetch(ends, repository)
    _say_what_is_lost(session, repository, pipeline.name, fetched)
    run_until_told(session, pipeline, repository, None, activate=True, **run)


class _Fetched(NamedTuple):
    """What an activation could not have of its source: why nothing more was fetched, and what is damaged there."""

    missed: str | None
    damaged: Sequence[Uncopied] = ()


class _GivenUp(Exception):
    """Nobody waits for the rest of a copy any more."""


class _LastLook:
    """Copies what the source still has, for as long as it answers, and not for ever.

    A take-over that needs the source is none: it may be away, damaged, locked by another key or written by a newer
    Holdfast, and what is here can be run all the same. It may also take a connection and never answer, or be a share
    that hangs: so it is looked at in a thread of its own, which is left behind when it is given up. The copier there
    can be cut off anywhere, and what it still brings is of generations that the one to come has passed.
    """

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._opened: Future[None] = Future()
        self._copied: Future[Copied] = Future()
        self._is_over = threading.Event()
        self._done = self._total = 0

    def fetch(self, ends: Ends, repository: Repository) -> _Fetched:
        """What is wrong with the source alone, or with what it is copied over, is told. Raises Diverged."""
        look = threading.Thread(target=self._look, args=(ends, repository), name="holdfast-last-look", daemon=True)
        look.start()
        try:
            if not self._comes(LAST_LOOK, self._opened, self._copied):
                return _Fetched(f"it did not answer within {LAST_LOOK:.0f} s")
            if not self._comes(FETCH_SECONDS, self._copied):
                had = f"{self._done} of {amount(self._total, 'checkpoint')}" if self._total else "nothing"
                return _Fetched(f"it was given up after {FETCH_SECONDS:.0f} s, with {had} fetched")
            return _Fetched(None, self._copied.result().damaged)
        except UNFETCHED as error:
            return _Fetched(error.message)
        finally:
            self._is_over.set()

    def _look(self, ends: Ends, repository: Repository) -> None:
        try:
            source = ends.source(LAST_LOOK)
            self._opened.set_result(None)
            self._copied.set_result(source.copy_to(repository, self._name, self._progress, decrypt=ends.decrypt))
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it, if anybody still does
            self._copied.set_exception(error)

    def _progress(self, _what: str, done: int, total: int) -> None:
        if self._is_over.is_set():
            raise _GivenUp
        self._done, self._total = done, total

    def _comes(self, seconds: float, *awaited: Future[Any]) -> bool:
        """Whether one of these comes in time; meanwhile, every few seconds, how far it is."""
        began = told = time.monotonic()
        while not wait(awaited, LOOK_UP, FIRST_COMPLETED).done:
            now = time.monotonic()
            if now >= began + seconds:
                return False
            if now >= told + TELL_SECONDS and self._total:
                told = now
                self._tell()
        return True

    def _tell(self) -> None:
        if self._session.as_json:
            fields = {"pipeline": self._name, "done": self._done, "total": self._total}
            self._session.document_line({"event": "fetching", **fields})
        else:
            done = f"{self._done} of {amount(self._total, 'checkpoint')}"
            self._session.output.remark(clean(f"{self._name}: fetching what the source still has: {done}"))


def _say_what_is_lost(session: Session, repository: Repository, name: str, fetched: _Fetched) -> None:
    latest = repository.pipeline(name).latest()
    taken_ms = latest.head.timestamp_ms if latest else None
    age = None if taken_ms is None else max(0.0, time.time() - taken_ms / 1000)
    missed, damaged = fetched
    if session.as_json:
        from holdfast.report import plain

        fields = {"slot": latest.slot if latest else None, "epoch": latest.epoch if latest else None}
        lacking = {"source_error": missed, "damaged": plain(list(damaged))}
        session.document_line({"event": "activating", "pipeline": name, **fields, "age_seconds": age, **lacking})
        return
    at = f"{latest.slot}, epoch {latest.epoch}, taken {age:.0f} s ago" if latest and age is not None else "none"
    session.output.remark(f"{name}: the newest checkpoint here: {at}")
    for lost in damaged:
        what = lost.key if lost.slot is None else lost.slot
        click.echo(clean(f"{name}: {what} is damaged at the source, and is not here: {lost.why}"), err=True)
    if missed is not None:
        click.echo(clean(f"{name}: the source was not asked for more: {missed}"), err=True)
    if missed is not None or any(_may_be_newer(lost, latest) for lost in damaged):
        click.echo(f"{name}: what it ran after that is taken back in the sinks, and run again from here", err=True)
    else:
        session.output.remark(f"{name}: all {'else ' if damaged else ''}that the source holds is here")


def _may_be_newer(lost: Uncopied, newest: Checkpoint | None) -> bool:
    """Whether what is damaged is something after the newest checkpoint here, or may keep something such from here."""
    if newest is None or lost.slot is not None:
        return newest is None or (lost.slot is not None and lost.slot > newest.slot)
    name = newest.pipeline.records.parse(lost.key)
    return name is not None and name.what in {"claim", "base", "ledger"}
