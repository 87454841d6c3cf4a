"""What a manifest says of a cut beside its files: offsets, watermark, settings, in words that are not Spark's alone."""

from __future__ import annotations

import json

from holdfast.decide.spark_versions import written_by
from holdfast.draft import Description
from holdfast.manifest import ConnectorOffset
from holdfast.spark.cut import Cut
from holdfast.spark.logs import parse_source_offset
from holdfast.spark.sources import log_offset

__all__ = ["DIRECTORY", "ENGINE", "QUERY_ID", "describe_cut", "source_kind"]

ENGINE = "spark"
QUERY_ID = "query_id"
DIRECTORY = "directory"


def describe_cut(cut: Cut, url: str, spark_version: str | None) -> Description:
    """The description of a checkpoint made from a cut; `url` is where its directory lay.

    A `spark_version` that is not known is told from the files, as exactly as they say.
    """
    return Description(
        source_offsets={name: _source(offset, cut.epoch) for name, offset in cut.offsets.sources.items()},
        watermark=cut.commit.next_watermark_ms or None,
        vnode_count=cut.offsets.partitions if cut.operators else 0,
        engine=ENGINE,
        spark_version=spark_version or _written_by(cut),
        metadata={**cut.offsets.settings, QUERY_ID: cut.query_id, DIRECTORY: url, **_remarks(cut)},
    )


def _written_by(cut: Cut) -> str:
    checksums = any(name.endswith(".crc") for name in cut.files) if cut.commit.state_ids else None
    return written_by(cut.offsets.settings, checksums)


def _source(offset: str | None, epoch: int) -> ConnectorOffset:
    parsed = parse_source_offset(offset, epoch)
    return ConnectorOffset(offsets=parsed.offsets, epoch=epoch, metadata={"kind": source_kind(offset)})


def _remarks(cut: Cut) -> dict[str, str]:
    return {"progress": "asynchronous"} if cut.asynchronous else {}


def source_kind(offset: str | None) -> str:
    """Which kind of source an offset is of, by its shape."""
    if offset is None:
        return "nothing read yet"
    if log_offset(offset) is not None:
        return "files"
    try:
        parsed = json.loads(offset)
    except ValueError:
        return "other"
    if isinstance(parsed, int):
        return "rate"
    if not isinstance(parsed, dict):
        return "other"
    if {"reservoirId", "reservoirVersion"} <= set(parsed):
        return "delta"
    if set(parsed) == {"offset", "timestamp"}:
        return "rate-micro-batch"
    partitions = [inner for inner in parsed.values() if isinstance(inner, dict)]
    if partitions and len(partitions) == len(parsed) and all(_is_kafka(inner) for inner in partitions):
        return "kafka"
    return "other"


def _is_kafka(partitions: dict[str, object]) -> bool:
    return all(name.isdecimal() and isinstance(offset, int) for name, offset in partitions.items())
