"""Sinks that break one rule each, made of the one in the page on writing one; the suite must find out each.

`test_suite.py` has pytest run this file beside that page's `documents.py` and `test_documents.py`.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import msgspec
from documents import Documents  # type: ignore[import-not-found]
from test_documents import TestDocuments as _Suite  # type: ignore[import-not-found]

from holdfast.decide.chain import require_holder
from holdfast.epochs import Holder, Link, Marker, Step, Target
from holdfast.errors import SinkUnfit
from holdfast.sinks.contract import admit, raise_fence
from holdfast.sinks.staged import StagedRows


class NoFence(Documents):  # type: ignore[misc]
    """Commits for whoever calls."""

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        with self._transaction() as db:
            held = self._marker(db)
            after = admit(self.name, msgspec.structs.replace(held, holder=self._mine()), self._mine(), step)
            if after is not None:
                self._write(db, step, rows)
                self._mark(db, msgspec.structs.replace(after, holder=held.holder))
        return {"epoch": step.epoch}


class LooksThenWrites(Documents):  # type: ignore[misc]
    """Asks in one transaction, and writes in another."""

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        after = admit(self.name, self.look(), self._mine(), step)
        if after is not None:
            with self._transaction() as db:
                self._write(db, step, rows)
                self._mark(db, after)
        return {"epoch": step.epoch}


class RowsThenMarker(Documents):  # type: ignore[misc]
    """Each in a transaction that asks, but not in the same."""

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        for part in ("rows", "marker"):
            with self._transaction() as db:
                after = admit(self.name, self._marker(db), self._mine(), step)
                if after is not None and part == "rows":
                    self._write(db, step, rows)
                elif after is not None:
                    self._mark(db, after)
        return {"epoch": step.epoch}


class MarkerThenRows(Documents):  # type: ignore[misc]
    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        with self._transaction() as db:
            after = admit(self.name, self._marker(db), self._mine(), step)
            if after is not None:
                self._mark(db, after)
        if after is not None:
            with self._transaction() as db:
                self._write(db, step, rows)
        return {"epoch": step.epoch}


class SkipsByNumber(Documents):  # type: ignore[misc]
    """Takes an epoch for held if it has come so far, as a file sink or a Delta txnVersion does."""

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        with self._transaction() as db:
            held = require_holder(self.name, self._marker(db), self._mine())
            if held.at.epoch < step.epoch:
                self._write(db, step, rows)
                self._mark(db, Marker(self._mine(), step.after, step.decided))
        return {"epoch": step.epoch}


class NoChain(Documents):  # type: ignore[misc]
    """Takes whatever the holder brings, if it is not what it ends with."""

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        with self._transaction() as db:
            held = require_holder(self.name, self._marker(db), self._mine())
            if (held.at, held.decided) != (step.after, step.decided):
                self._write(db, step, rows)
                self._mark(db, Marker(self._mine(), step.after, step.decided))
        return {"epoch": step.epoch}


class TakesLowerGenerations(Documents):  # type: ignore[misc]
    """Whoever fences last holds it."""

    def fence(self, holder: Holder, begin: Link) -> Marker:
        with self._transaction() as db:
            held = self._marker(db)
            if held is not None:
                self._mark(db, Marker(msgspec.structs.replace(held.holder, generation=-1), held.at, held.decided))
        return super().fence(holder, begin)


class FencesLate(Documents):  # type: ignore[misc]
    """Looks in one transaction, and raises the fence in another."""

    def fence(self, holder: Holder, begin: Link) -> Marker:
        held = self.look()
        if held is None:
            return super().fence(holder, begin)
        marker = raise_fence(self.name, held, holder, begin)
        with self._transaction() as db:
            self._mark(db, marker)
        self._holder = holder
        return marker


class InMemory(Documents):  # type: ignore[misc]
    """Its tokens mean nothing in another process."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.prepared: dict[str, list[str]] = {}

    def prepare(self, step: Step, rows: StagedRows) -> Any:
        self.prepared[str(step)] = [json.dumps(row, default=str) for b in rows.batches() for row in b.to_pylist()]
        return {"step": str(step)}

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        with self._transaction() as db:
            after = admit(self.name, self._marker(db), self._mine(), step)
            for document in self.prepared[token["step"]] if after is not None else []:
                db.execute("INSERT INTO documents VALUES (?, ?)", (step.epoch, document))
            if after is not None:
                self._mark(db, after)
        return {"epoch": step.epoch}


class OddTokens(Documents):  # type: ignore[misc]
    """Its tokens are no JSON values: they come out of the ledger as something else."""

    def prepare(self, step: Step, rows: StagedRows) -> Any:
        return {step.epoch: "prepared"}

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        assert token[step.epoch] == "prepared"
        return super().commit(step, token, rows)


class RefusesLate(Documents):  # type: ignore[misc]
    """Finds out in the commit what it can't take."""

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        if not all(name.isidentifier() for name in rows.schema.names):
            raise SinkUnfit(self.name, "such a name it can't take")
        return super().commit(step, token, rows)


class KeepsRows(Documents):  # type: ignore[misc]
    """Goes back by its marker alone."""

    def roll_back(self, target: Target, *, discard_foreign: bool = False) -> None:
        with self._transaction() as db:
            require_holder(self.name, self._marker(db), self._mine())
            self._mark(db, Marker(self._mine(), target.at, target.decided))


class LosesOthers(Documents):  # type: ignore[misc]
    """Goes back over what others wrote, though it lists it."""

    def foreign_since(self, target: Target) -> list[str]:
        with self._transaction() as db:
            return [str(row) for row in db.execute("SELECT document FROM documents WHERE epoch IS NULL")]

    def roll_back(self, target: Target, *, discard_foreign: bool = False) -> None:
        super().roll_back(target)
        with self._transaction() as db:
            db.execute("DELETE FROM documents WHERE epoch IS NULL")


class _Bad(_Suite):  # type: ignore[misc]
    sink: type[Documents]
    races = 15

    def open(self, mode: str, key: list[str]) -> Documents:
        return self.sink(self.path)


class TestNoFence(_Bad):
    sink = NoFence


class TestLooksThenWrites(_Bad):
    sink = LooksThenWrites


class TestRowsThenMarker(_Bad):
    sink = RowsThenMarker


class TestMarkerThenRows(_Bad):
    sink = MarkerThenRows


class TestSkipsByNumber(_Bad):
    sink = SkipsByNumber


class TestNoChain(_Bad):
    sink = NoChain


class TestTakesLowerGenerations(_Bad):
    sink = TakesLowerGenerations


class TestFencesLate(_Bad):
    sink = FencesLate


class TestInMemory(_Bad):
    sink = InMemory


class TestOddTokens(_Bad):
    sink = OddTokens


class TestRefusesLate(_Bad):
    sink = RefusesLate


class TestKeepsRows(_Bad):
    sink = KeepsRows


class TestLosesOthers(_Bad):
    sink = LosesOthers

    def meddle(self) -> bool:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            db.execute("INSERT INTO documents VALUES (NULL, ?)", (json.dumps({"id": 9, "word": "theirs"}),))
        return True
