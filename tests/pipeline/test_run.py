"""A run remembers how things stood after each epoch, for as long as a capture of it needs that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import holdfast
from holdfast.decide.fingerprint import Fingerprint
from holdfast.draft import Draft
from holdfast.epochs import Holder, Link, Target
from holdfast.handles import StoredPipeline
from holdfast.pipeline.driver_states import DriverStates, load_driver_states
from holdfast.pipeline.epoch import Epochs, Held
from holdfast.pipeline.run import KEPT, Running
from holdfast.pipeline.staging import FolderStaging, StagingPlace
from holdfast.pipeline.upkeep import Upkeep
from holdfast.spark.capture import Capturer, Taken
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


def running(stored: StoredPipeline, directory: LocalDirectory, held: Held, states: DriverStates) -> Running:
    epochs = Epochs("p", Holder("id", 0, "t"), {"a": held}, [], NoStaging(), {}, look=None)
    return Running(
        epochs,
        directory,
        FolderStaging(StagingPlace(Address("memory://staged"), "memory:staged")),
        states,
        Upkeep(stored, {}),
        held.at.at.epoch,
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
