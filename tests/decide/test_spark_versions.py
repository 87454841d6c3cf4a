"""What another Spark would reject, or read wrongly, is known before anything is written."""

from __future__ import annotations

import pytest

from holdfast.decide.spark_versions import Formats, parse_version, rejects, written_by
from holdfast.errors import BadValue

PREFIX = "spark.sql.streaming."
PLAIN = Formats(settings={f"{PREFIX}stateStore.rocksdb.mergeOperatorVersion": "2"})


@pytest.mark.parametrize(
    ("text", "version"), [("4.3.0", (4, 3)), ("3.5", (3, 5)), ("4.10.1.dev2", (4, 10)), ("4.1.0-preview1", (4, 1))]
)
def test_the_first_two_numbers_of_a_version_count(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["", "4", "new", "v4.3"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(BadValue):
        parse_version(text)


@pytest.mark.parametrize("target", ["3.5.9", "4.0.5", "4.1.4", "4.2.1", "4.3.0"])
@pytest.mark.parametrize("captured", [None, "3.5.9", "4.0.5", "4.3.0"])
def test_the_plain_formats_go_everywhere(target: str, captured: str | None) -> None:
    assert rejects(PLAIN, target, captured) is None


@pytest.mark.parametrize(
    ("formats", "since"),
    [
        (Formats(state_checkpoint=2), "4.0"),
        (Formats(schemas_apart=True), "4.0"),
        (Formats(settings={f"{PREFIX}stateStore.encodingFormat": "avro"}), "4.0"),
        (Formats(settings={f"{PREFIX}stateStore.rowChecksum.enabled": "true"}), "4.1"),
        (Formats(join=3), "4.1"),
        (Formats(join=4), "4.2"),
        (Formats(offset_log=2), "4.2"),
        (Formats(commit_log=3), "4.2"),
        (Formats(schemas_apart=True, settings=PLAIN.settings), "4.2"),
    ],
)
def test_a_newer_format_needs_the_spark_that_brought_it(formats: Formats, since: str) -> None:
    every = ["3.5", "4.0", "4.1", "4.2", "4.3"]
    told = {version: rejects(formats, version) for version in every}
    assert [version for version in every if told[version] is None] == every[every.index(since) :]
    assert all(why is None or f"needs Spark {since}" in why for why in told.values())


def test_format_2_of_the_first_spark_that_had_it_does_not_go_to_later_ones() -> None:
    formats = Formats(state_checkpoint=2)
    assert "4.0.5" in (rejects(formats, "4.3.0", "4.0.5") or "")
    assert rejects(formats, "4.1.0", "4.0.0") is not None
    assert rejects(formats, "4.0.1", "4.0.5") is None
    assert rejects(formats, "4.3.0", "4.1.4") is None
    assert rejects(formats, "4.3.0", None) is None


def test_the_settings_that_are_pinned_tell_which_spark_wrote_them() -> None:
    encoding = "spark.sql.streaming.stateStore.encodingFormat"
    evolution = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
    keys = "spark.sql.dropDuplicates.deterministicKeyOrder.enabled"
    assert written_by({"spark.sql.shuffle.partitions": "3"}) == "3.5 or older"
    assert written_by({encoding: "unsaferow"}) == "4.0 or 4.1"
    assert written_by({encoding: "unsaferow"}, checksums=False) == "4.0"
    assert written_by({encoding: "unsaferow"}, checksums=True) == "4.1"
    assert written_by({encoding: "unsaferow", evolution: "false"}) == "4.2"
    assert written_by({encoding: "unsaferow", evolution: "false", keys: "true"}) == "4.3"


def test_what_was_told_from_files_alone_is_refused_as_what_was_known() -> None:
    told = written_by({"spark.sql.streaming.stateStore.encodingFormat": "unsaferow"}, checksums=False)
    assert rejects(Formats(state_checkpoint=2), "4.3", told)
    assert rejects(Formats(state_checkpoint=2), "4.0", told) is None
