"""What another Spark would reject, or read wrongly, is known before anything is written."""

from __future__ import annotations

import pytest

from holdfast.decide.spark_versions import Formats, parse_version, rejects, snapshots_differ, written_by
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
        (Formats(settings={f"{PREFIX}stateStore.rowChecksum.enabled": "true"}), "4.2"),
        (Formats(settings={f"{PREFIX}join.stateFormatVersion": "3"}), "4.1"),
        (Formats(settings={f"{PREFIX}join.stateFormatVersion": "4"}), "4.2"),
        (Formats(join=4, settings={f"{PREFIX}join.stateFormatVersion": "4"}), "4.3"),
        (Formats(offset_log=2), "4.2"),
        (Formats(commit_log=3), "4.2"),
        (Formats(schemas_apart=True, settings=PLAIN.settings), "4.0"),
        (Formats(schemas_apart=True, lists=True, settings=PLAIN.settings), "4.2"),
    ],
)
def test_a_newer_format_needs_the_spark_that_brought_it(formats: Formats, since: str) -> None:
    every = ["3.5", "4.0", "4.1", "4.2", "4.3"]
    told = {version: rejects(formats, version) for version in every}
    assert [version for version in every if told[version] is None] == every[every.index(since) :]
    assert all(why is None or f"needs Spark {since}" in why for why in told.values())


def told_for(formats: Formats, captured: str) -> list[str]:
    """The Sparks that are let through."""
    every = ["3.5", "4.0", "4.1", "4.2", "4.3"]
    return [version for version in every if rejects(formats, version, captured) is None]


def test_snapshots_go_between_spark_4_0_and_others_only_in_format_1() -> None:
    assert told_for(Formats(state_checkpoint=2, snapshots=2), "4.0.5") == ["4.0"]
    assert told_for(Formats(state_checkpoint=1, snapshots=2), "4.0.5") == ["4.0"]
    assert told_for(Formats(state_checkpoint=2, snapshots=1), "4.1.4") == ["4.1", "4.2", "4.3"]
    # A query of format 1 came first in that process.
    assert told_for(Formats(state_checkpoint=2, snapshots=1), "4.0.5") == ["4.0", "4.1", "4.2", "4.3"]
    # Changelogs alone are read by all.
    assert told_for(Formats(state_checkpoint=2, snapshots=0), "4.0.5") == ["4.0", "4.1", "4.2", "4.3"]
    assert told_for(Formats(state_checkpoint=1, snapshots=1), "4.3.0") == ["3.5", "4.0", "4.1", "4.2", "4.3"]


def test_snapshots_are_looked_into_where_spark_4_0_may_have_written_them() -> None:
    encoding = {f"{PREFIX}stateStore.encodingFormat": "unsaferow"}
    assert snapshots_differ(encoding)
    assert not snapshots_differ({})
    assert not snapshots_differ({**encoding, f"{PREFIX}queryEvolution.enableSourceEvolution": "false"})


SCALA_2_12 = ("quantity", "channel", "source", "status", "target")
SCALA_2_13 = ("source", "status", "target", "quantity", "channel")
AS_GIVEN = ("quantity", "channel", "status", "source", "target")
STABLE = {"spark.sql.dropDuplicates.deterministicKeyOrder.enabled": "true"}


def test_five_columns_of_drop_duplicates_go_where_they_are_kept_in_the_same_order() -> None:
    assert told_for(Formats(deduplicated=[SCALA_2_12]), "3.5.9") == ["3.5"]
    assert told_for(Formats(deduplicated=[SCALA_2_13]), "4.0.5") == ["4.0", "4.1", "4.2", "4.3"]
    assert told_for(Formats(deduplicated=[AS_GIVEN], settings=STABLE), "4.3.0") == ["4.3"]
    assert "quantity, channel, source, status, target" in (rejects(Formats(deduplicated=[SCALA_2_12]), "4.3") or "")


def test_four_columns_of_drop_duplicates_go_everywhere() -> None:
    for captured, settings in (("3.5.9", {}), ("4.2.1", {}), ("4.3.0", STABLE)):
        assert len(told_for(Formats(deduplicated=[AS_GIVEN[:4]], settings=settings), captured)) == 5


def test_an_order_of_columns_that_the_writer_does_not_explain_is_let_through() -> None:
    assert len(told_for(Formats(deduplicated=[AS_GIVEN]), "4.2.1")) == 5
    assert len(told_for(Formats(deduplicated=[SCALA_2_13]), "3.5.9")) == 5


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
    assert told == "4.0"
    assert told_for(Formats(state_checkpoint=2, snapshots=1), told) == ["4.0", "4.1", "4.2", "4.3"]
    assert told_for(Formats(deduplicated=[SCALA_2_12]), "3.5 or older") == ["3.5"]
