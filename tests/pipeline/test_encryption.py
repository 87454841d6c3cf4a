"""A pipeline into an encrypted repository: exactly once through loss, rotation and rewind, and nothing readable."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast import Key
from pipeline.place import Place


def test_both_sinks_hold_the_truth_through_a_lost_directory_a_rotation_and_a_rewind(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Key.generate(), Key.generate()
    monkeypatch.setenv("HOLDFAST_KEY", first.text())
    place = Place(tmp_path, spark)
    place.inputs(7)
    place.run(every="3 batches")
    shutil.rmtree(place.home)
    assert place.repository.keys is not None
    place.repository.keys.rotate(second)
    monkeypatch.setenv("HOLDFAST_KEY", second.text())
    place = Place(tmp_path, spark)
    place.inputs(10)
    place.run(place.pipeline(per_batch=2), every="1 batch")
    truth = place.plain([(7, 1), (10, 2)])
    assert place.rows("log") == place.rows("table") == truth
    stored = place.repository.pipeline("sums")
    stored["epoch:6"].savepoint("before")
    place.pipeline().rewind(place.repository, to="before", checkpoint_dir=place.home)
    assert len(place.rows("log")) < len(truth)
    place.run(place.pipeline(per_batch=2))
    assert place.rows("log") == place.rows("table") == truth
    assert stored.check(read_percent=100).damaged == []
    raw = [path for path in (tmp_path / "repository").rglob("*") if path.is_file() and "pipelines" in path.parts]
    for word in (b"sums", b"inputs", b"maxFilesPerTrigger", b"before", b"SQLite"):
        assert not any(word in str(path.relative_to(tmp_path)).encode() + path.read_bytes() for path in raw), word
