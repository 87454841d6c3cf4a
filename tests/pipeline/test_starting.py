"""Where Spark's directories lie: gone on in on one machine, under a lock, and never in an object store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.draft import Description, Draft
from holdfast.errors import DamagedArtifact, NothingRestorable, SparkRejects
from holdfast.handles import StoredPipeline
from holdfast.pipeline.home import Home, new_directory
from holdfast.pipeline.links import LINK, encode_link, link_of_offsets
from holdfast.pipeline.starting import Starting
from holdfast.pipeline.warm import find_warm
from holdfast.spark.capture import Capturer, Taken
from holdfast.spark.places import SparkPlace
from holdfast.store import open_store
from holdfast.store.local_directory import LocalDirectory
from servers import S3Server
from spark.directories import MadeDirectory

RUN = new_directory(0)


@pytest.fixture
def made(tmp_path: Path) -> MadeDirectory:
    """A directory of three batches, whole."""
    directory = MadeDirectory(tmp_path / "made")
    for _ in range(3):
        directory.batch()
    return directory


@pytest.fixture
def stored(made: MadeDirectory) -> StoredPipeline:
    """A pipeline whose first generation has a checkpoint of the last batch."""
    pipeline = holdfast.open("memory://", create=True).pipeline("p")

    def describe(epoch: int) -> Callable[[Draft, Description], Description]:
        link = link_of_offsets(epoch, (made.root / f"offsets/{epoch}").read_bytes())
        return lambda _draft, about: replace(about, metadata={**about.metadata, LINK: encode_link(link)})

    capturer = Capturer(pipeline.records, LocalDirectory(made.root), add=describe)
    assert isinstance(capturer.take(known=2), Taken)
    capturer.close()
    return pipeline


def lay(made: MadeDirectory, url: str, options: dict[str, str]) -> Home:
    """The very directory that the generation ran in, where its pipeline has its home."""
    store = open_store(f"{url}/{RUN}", options)
    for name in made.names():
        store.put(name, (made.root / name).read_bytes())
    home = Home(SparkPlace(url, options))
    home.note_run(0, RUN, -1)
    return home


def state_found(home: Home, stored: StoredPipeline, is_mine: bool) -> str:
    unused: Any = None
    starting = Starting(stored, home, unused, {}, [], unused, is_mine)
    return starting.find(stored.records.world()).state.kind


def test_on_a_disk_a_whole_directory_is_gone_on_in_by_the_one_that_holds_it(
    made: MadeDirectory, stored: StoredPipeline, tmp_path: Path
) -> None:
    home = lay(made, str(tmp_path / "home"), {})
    assert home.is_local
    with home.held() as is_mine:
        assert is_mine
        assert state_found(home, stored, is_mine) == "warm"
        with Home(SparkPlace(str(tmp_path / "home"))).held() as is_anothers:
            assert not is_anothers
            assert state_found(home, stored, is_anothers) == "checkpoint"


def test_in_an_object_store_no_directory_is_ever_gone_on_in(
    made: MadeDirectory, stored: StoredPipeline, s3_server: S3Server, s3_url: str
) -> None:
    """Nothing fences Spark's own writes there: two in one directory would overwrite each other's state."""
    home = lay(made, s3_url, s3_server.options)
    assert find_warm(home, stored.records, stored.records.world(), None) is not None, "it lies there, whole"
    assert not home.is_free()
    with home.held() as is_mine:
        assert not is_mine
        assert state_found(home, stored, is_mine) == "checkpoint"


# ---- what is gone back to ----


@pytest.mark.parametrize("to", [True, False], ids=["a rewind", "a start"])
def test_a_checkpoint_is_looked_at_whole_before_anybody_depends_on_it(
    stored: StoredPipeline, tmp_path: Path, to: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest, unused = stored.latest(), None
    assert latest is not None

    def find() -> str:
        home, none = Home(SparkPlace(str(tmp_path / "home"))), unused
        target = latest.manifest if to else None
        starting = Starting(stored, home, none, {}, [], none, True, target=target)  # type: ignore[arg-type]
        return starting.find(stored.records.world()).state.kind

    assert find() == "checkpoint"
    with monkeypatch.context() as patched:
        patched.setattr("holdfast.spark.lay.rejects", lambda *_what: "it is too old")
        with pytest.raises(SparkRejects):
            find()
    artifact = latest.manifest.files["commits/2"]
    key = f"{stored.records.keys.prefix}{artifact.path}"
    data = bytearray(stored.records.store.get(key))
    data[artifact.offset or 0] ^= 1
    stored.records.store.delete([key])
    stored.records.store.create(key, bytes(data))
    with pytest.raises(DamagedArtifact if to else NothingRestorable):
        find()
