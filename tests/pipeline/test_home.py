"""What a pipeline's folder keeps of older generations, on a disk and in an object store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.pipeline.home import Home
from holdfast.pipeline.staging import sweep
from holdfast.spark.places import SparkPlace
from pipeline.place import Place
from servers import S3Server

FILES = ("metadata", "offsets/0", "state/0/0/1.zip")


@pytest.fixture(params=["disk", "s3"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    if request.param == "disk":
        return Home(SparkPlace(str(tmp_path / "home")))
    server: S3Server = request.getfixturevalue("s3_server")
    url: str = request.getfixturevalue("s3_url")
    return Home(SparkPlace(f"{url.replace('s3://', 's3a://')}/home", server.options))


def laid(home: Home, names: Iterable[str]) -> None:
    """Folders as Spark leaves them."""
    for name in names:
        for file in FILES:
            home.address(name).store().put(file, b"bytes")


def folders_of(home: Home, place: str = "") -> list[str]:
    """Those that hold something: some servers still name one whose last object is gone."""
    store = home.address(place).store()
    return [name for name in store.folders("") if store.list(f"{name}/")]


def run_names(*generations: int) -> list[str]:
    return [f"run-{generation:010}" for generation in generations]


def test_of_older_directories_only_the_last_is_kept_and_newer_ones_are_not_touched(home: Home) -> None:
    laid(home, [*run_names(0, 1, 3, 4, 5, 6), "run-other", "staging/hf-0-1-t"])
    assert home.clear(5, "run-0000000005") == run_names(0, 1, 3)
    assert folders_of(home) == [*run_names(4, 5, 6), "run-other", "staging"]
    for name in run_names(4, 5, 6):
        assert {info.key for info in home.address(name).store().list("")} == set(FILES)
    assert folders_of(home, "staging") == ["hf-0-1-t"]


def test_a_directory_that_is_gone_on_in_stays_however_old_it_is(home: Home) -> None:
    laid(home, run_names(0, 2, 3))
    assert home.clear(9, "run-0000000000") == run_names(2)
    assert folders_of(home) == run_names(0, 3)


def test_what_older_generations_have_staged_is_swept_and_nothing_else(home: Home) -> None:
    laid(home, [f"staging/{name}" for name in ("hf-0-3-a", "hf-1-9-b", "hf-2-0-c", "hf-3-1-d", "of-0-3-e", "hf-x-1-f")])
    sweep(home.address("staging"), 2)
    assert folders_of(home, "staging") == ["hf-2-0-c", "hf-3-1-d", "hf-x-1-f", "of-0-3-e"]


def test_a_pipeline_that_is_rewound_over_and_over_keeps_two_directories(tmp_path: Path, spark: SparkSession) -> None:
    place = Place(tmp_path, spark)
    place.inputs(2)
    place.run(every="1 batch")
    place.repository.pipeline("sums")["epoch:0"].savepoint("before")
    for _ in range(3):
        place.rewind()
    assert len([*place.home.glob("run-*")]) == 4, "a rewind lays, and takes nothing away"
    place.run(every="1 batch")
    assert sorted(path.name for path in place.home.glob("run-*")) == run_names(2, 3)
    assert place.rows("log") == place.plain([(2, 1)])
