"""The epochs of one generation; `test_walk.py` has what they do when they are killed, paused and overtaken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.epochs import EpochDecision, Holder, Link, Staged
from holdfast.pipeline.epoch import Batch, Epochs, Staging
from holdfast.sinks.staged import StagedRows
from holdfast.store import Address


@dataclass
class Numbered(Batch):
    """A batch without rows."""

    before: Link
    after: Link
    offsets: bytes = b"v1"
    sources: Mapping[str, bytes] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    has_state: bool = True

    def stage(self, folder: str) -> StagedRows:
        return StagedRows(Staged(folder, [], ""), Address("memory://staged"))


class NoStaging(Staging):
    def open(self, staged: Staged) -> StagedRows | None:
        raise AssertionError(staged)

    def remove(self, staged: Staged) -> None:
        pass


def test_a_driver_that_runs_for_months_keeps_no_decision_that_is_past() -> None:
    noted: list[EpochDecision] = []
    epochs = Epochs("p", Holder("id", 0, "t"), {}, [], NoStaging(), {}, look=None, note=noted.append)
    for epoch in range(100):
        decided = epochs.run(Numbered(Link(epoch - 1, "x"), Link(epoch, "x")))
        assert decided is noted[-1]
    assert [*epochs._decided] == [99]
