"""A run remembers how things stood after each epoch, for as long as a capture of it needs that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast.decide.fingerprint import Fingerprint
from holdfast.draft import Draft
from holdfast.epochs import EpochDecision, Holder, Link, Staged, Target
from holdfast.errors import NameTaken
from holdfast.handles import StoredPipeline
from holdfast.pipeline.driver_states import DriverStates, load_driver_states
from holdfast.pipeline.epoch import Epochs, Held
from holdfast.pipeline.links import link_of_manifest, link_of_offsets
from holdfast.pipeline.run import KEPT, Run, Running
from holdfast.pipeline.staging import FolderStaging, StagingPlace
from holdfast.pipeline.upkeep import Upkeep
from holdfast.spark.capture import Capturer, NotYet, Taken
from holdfast.store import Address
from holdfast.store.directory import FileStat
from holdfast.store.local_directory import LocalDirectory
from pipeline.model import ModelSink, Written
from pipeline.test_epoch import NoStaging
from spark.directories import MadeDirectory


class Meanwhile:
    """Moves nothing itself: the query goes on while the files of a capture are moved."""

    def __init__(self, goes_on: Callable[[], None]) -> None:
        self._goes_on = goes_on

    def is_worth(self, _files: Mapping[str, FileStat]) -> bool:
        self._goes_on()
        return False

    def send(self, _draft: Draft, _files: Mapping[str, FileStat]) -> dict[str, FileStat]:
        raise AssertionError


def running(
    stored: StoredPipeline,
    directory: LocalDirectory,
    held: Held,
    states: DriverStates,
    decided: Mapping[int, Sequence[EpochDecision]] | None = None,
    epoch: int | None = None,
) -> Running:
    epochs = Epochs("p", Holder("id", 0, "t"), {"a": held}, [], NoStaging(), decided or {}, look=None)
    return Running(
        epochs,
        directory,
        FolderStaging(StagingPlace(Address("memory://staged"), "memory:staged")),
        states,
        Upkeep(stored, {}),
        held.at.at.epoch if epoch is None else epoch,
        query=Fingerprint({}),
        tables={},
        add_sources=lambda about: about,
        join=lambda: None,
        look=lambda: None,
        tell=lambda _event: None,
    )


def test_a_first_capture_that_outlasts_a_thousand_epochs_says_how_things_stood_after_its_own(tmp_path: Path) -> None:
    made = MadeDirectory(tmp_path / "ck")
    for _ in range(3):
        made.batch()
    stored, directory = holdfast.open("memory://", create=True).pipeline("p"), LocalDirectory(made.root)
    held = Held(ModelSink(Written(), True, lambda _step: None), Target(Link(2, "at 2"), 0, {"at": 2}))
    counted = {"epoch": 2}
    run = running(stored, directory, held, DriverStates({"counted": counted}))

    def go_on() -> None:
        for epoch in range(3, KEPT + 10):
            held.at, counted["epoch"] = Target(Link(epoch, f"at {epoch}"), 0, {"at": epoch}), epoch
            run._note(epoch)

    capturer = Capturer(stored.records, directory, mover=Meanwhile(go_on), add=run.describe)
    taken = capturer.take(known=2)
    capturer.close()
    assert isinstance(taken, Taken)
    assert taken.manifest.epoch == 2
    assert taken.manifest.sink_positions["a"]["position"] == {"at": 2}
    saved = DriverStates({"counted": {"epoch": 2}}).save()
    assert load_driver_states(stored.records, taken.manifest) == saved
    assert run.newest()[0] == KEPT + 9


def test_an_epoch_that_was_run_again_while_a_sink_was_ahead_of_it_is_not_captured_and_the_last_of_them_is(
    tmp_path: Path,
) -> None:
    """How the sinks stood after the others nobody knows: such a checkpoint would say that they hold more."""
    made = MadeDirectory(tmp_path / "ck", operators=0)
    for _ in range(5):
        made.batch()
    stored, directory = holdfast.open("memory://", create=True).pipeline("p"), LocalDirectory(made.root)
    offsets = [directory.read(f"offsets/{epoch}")[0] for epoch in range(5)]
    links = [link_of_offsets(epoch, data) for epoch, data in enumerate(offsets)]

    def decision(epoch: int) -> EpochDecision:
        return EpochDecision(
            token="t", generation=0, attempt=0, before=links[epoch - 1], after=links[epoch], offsets=offsets[epoch],
            sources={}, staged=Staged("memory://s", [], ""), tokens={}, backs={},
        )  # fmt: skip

    held = Held(ModelSink(Written(), True, lambda _step: None), Target(links[4], 0, {"at": 4}))
    decided = {epoch: [decision(epoch)] for epoch in range(1, 5)}
    run = running(stored, directory, held, DriverStates({}), decided, 0)
    for epoch in decided:
        unused: Any = None
        run(unused, epoch)
    assert run.newest()[0] == 4
    capturer = Capturer(stored.records, directory, add=run.describe)
    assert isinstance(capturer.take(), NotYet), "3, which 4 has followed"
    capturer.close()
    capturer = Capturer(stored.records, directory, add=run.describe, over=4)
    taken = capturer.take()
    capturer.close()
    assert isinstance(taken, Taken)
    assert (taken.manifest.epoch, link_of_manifest(taken.manifest)) == (4, links[4])


@pytest.mark.parametrize("is_active", [True, False])
def test_a_query_that_goes_on_because_a_name_was_refused_is_not_let_go_of(is_active: bool) -> None:
    class Attached:
        def stop(self, savepoint: str) -> None:
            raise NameTaken(savepoint, "0-1")

    let_go: list[bool] = []
    parts: Any = SimpleNamespace(name="p", generation=0, isActive=is_active, error=None)
    attached: Any = Attached()
    run = Run(parts, parts, parts, parts, attached, parts, lambda: let_go.append(True))
    with pytest.raises(NameTaken):
        run.stop("taken")
    assert bool(let_go) is not is_active
