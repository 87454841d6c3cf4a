"""The log of Spark's file sink: which of its files say what the sink held after a batch, and that in bytes.

The sink skips every batch up to the newest in its log. So after a restore to an older batch the log must be cut back to
it, or the batches that are run again are lost. A joined entry (`N.compact`) does not tell its batches apart: the cut is
exact only while the entries up to the batch are there, or where a capture has kept them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from holdfast.draft import Description, Draft
from holdfast.errors import NotCapturable, ObjectMissing, SinkLogGone
from holdfast.spark.edits import map_log_paths, paths_in_log
from holdfast.spark.locations import PathMap, below, read_plain, written
from holdfast.spark.logs import Malformed
from holdfast.store.directory import Directory

__all__ = ["KEPT", "LOG", "RECORDED", "SINK", "Trimmed", "batch_of", "chain_at", "keep_sink_log", "trim"]

LOG = "_spark_metadata"
KEPT = f"{LOG}.before"
"""Where logs that were replaced are kept, each in a folder; Spark passes over names with a leading underscore."""
RECORDED = "_holdfast/file-sink/"
"""Where a checkpoint keeps the sink's log; never laid down in a checkpoint directory."""
SINK = "file_sink"
"""The metadata of a checkpoint that says where the sink is."""

ENTRY = re.compile(r"(\d+)(\.compact)?")


@dataclass(frozen=True)
class Trimmed:
    """The log as it was after a batch, by name; `mapped` says in how many places a path in it was."""

    epoch: int
    files: Mapping[str, bytes]
    mapped: int

    @property
    def newest(self) -> str:
        """The name of the last entry, without which the log does not reach the batch."""
        return max(self.files, key=lambda name: batch_of(name) or 0)


def batch_of(name: str) -> int | None:
    """The batch whose entry a file of the log is; None for any other file."""
    found = ENTRY.fullmatch(name)
    return int(found[1]) if found else None


def chain_at(names: Iterable[str], epoch: int) -> list[str] | str:
    """The files that make up the log at a batch, or the name of one that is missing.

    The newest joined entry and every single one after it; the joined one before that as well, if it is there: from the
    two Spark learns how often entries are joined.
    """
    there = {name for name in names if batch_of(name) is not None}
    joined = sorted(batch for name in there if name.endswith(".compact") and (batch := batch_of(name) or 0) <= epoch)
    singles = [str(batch) for batch in range(joined[-1] + 1 if joined else 0, epoch + 1)]
    missing = [name for name in singles if name not in there]
    return missing[0] if missing else [*(f"{batch}.compact" for batch in joined[-2:]), *singles]


def keep_sink_log(draft: Draft, sink: Directory, about: Description) -> Description:
    """Bring the log of a sink, up to the batch, into a draft; gives the description with where the sink is.

    An entry is there before its batch is committed. Raises ObjectMissing if Spark drops one meanwhile, and
    NotCapturable if there is none: this is another sink.
    """
    look = sink.look(LOG)
    chain = chain_at(look.files(LOG), draft.epoch)
    if isinstance(chain, str):
        raise NotCapturable(sink.url, f"it has no {LOG}/{chain}: is this the file sink of the query?")
    for name in chain:
        stat = look.stat(f"{LOG}/{name}")
        if stat is None or not draft.keep_file(RECORDED + name, stat.size, stat.stamp):
            data, stat = sink.read(f"{LOG}/{name}")
            draft.save_file(RECORDED + name, data, stat.stamp)
    return replace(about, metadata={**about.metadata, SINK: sink.url})


def trim(
    url: str, sink: Directory, epoch: int, recorded: Mapping[str, bytes], mapping: PathMap, since_ms: int
) -> Trimmed:
    """The log of the sink at `url` as it was after a batch: from what the capture recorded, else from the log itself.

    Raises SinkLogGone where neither has it all, and where it does not belong to this sink. `since_ms` is when the
    checkpoint was taken: a log that was cut back below the batch since then tells of another run.
    """
    whole = bool(recorded) and not isinstance(chain_at(recorded, epoch), str)
    files = dict(recorded) if whole else _present(url, sink, epoch, since_ms)
    root, count = read_plain(url), 0
    for name, data in files.items():
        try:
            files[name], changed = map_log_paths(data, mapping)
            outside = [place for place in paths_in_log(files[name]) if not below(place, root)]
        except (Malformed, UnicodeDecodeError) as error:
            raise SinkLogGone(url, epoch, f"{LOG}/{name}: {error}") from None
        if outside:
            why = f"it names files elsewhere, such as {written(outside[0])}: is it this sink? If it moved, map the path"
            raise SinkLogGone(url, epoch, why)
        count += changed
    return Trimmed(epoch, files, count)


def _present(url: str, sink: Directory, epoch: int, since_ms: int) -> dict[str, bytes]:
    # Never a look at the whole sink: it may hold millions of files.
    names = [name for name in sink.look(LOG).files(LOG) if batch_of(name) is not None]
    if not names:
        raise SinkLogGone(url, epoch, f"there is no {LOG} in it")
    for name in sink.look(KEPT).folders(KEPT):
        cut = cut_back(name)
        if cut is not None and cut[0] < epoch and cut[1] > since_ms:
            why = f"its log was cut back to batch {cut[0]} since the checkpoint was taken, and tells of another run"
            raise SinkLogGone(url, epoch, why)
    chain = chain_at(names, epoch)
    if isinstance(chain, str):
        newest = max(batch_of(name) or 0 for name in names)
        gone = "its entries were joined or dropped since" if newest > epoch else f"its newest batch is {newest}"
        raise SinkLogGone(url, epoch, f"{LOG}/{chain} is not there: {gone}")
    try:
        return {name: sink.read(f"{LOG}/{name}")[0] for name in chain}
    except ObjectMissing as error:
        raise SinkLogGone(url, epoch, f"{error.key} was dropped just now: is a query still writing there?") from None


def cut_back(name: str) -> tuple[int, int] | None:
    """The batch and the time (ms) of an earlier cut, from the name of a log that it replaced."""
    found = re.fullmatch(r"epoch-(\d+)-(\d+)-\w+", name)
    return (int(found[1]), int(found[2])) if found else None
