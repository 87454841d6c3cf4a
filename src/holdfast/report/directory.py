"""What a check of a Spark checkpoint directory says: what it holds, and how it compares with what was captured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import DamagedRecord
from holdfast.report.plain import plain
from holdfast.repository.pipeline import PipelineRecords
from holdfast.spark.held import Compared, Other, compare, find_checkpoint
from holdfast.spark.inspect import Fault, Inspected, Severity, inspect
from holdfast.spark.meaning import meaning
from holdfast.store.directory import Directory

__all__ = ["DirectoryChecked", "check_directory", "describe_directory"]

Progress = Callable[[str, int, int], None]

WHY = {
    "missing": "it is not there, and was when the batch was captured",
    "damaged": "its bytes are not those that were captured",
    "other size": "it has not the size that was captured",
    "checksum file": "it is what was captured, but Hadoop's checksum beside it is not of it",
}


@dataclass(frozen=True)
class DirectoryChecked:
    """A directory as it is, and beside the newest checkpoint of it, where a pipeline was named."""

    inspected: Inspected
    compared: Compared | None
    checkpoint: str | None
    faults: tuple[Fault, ...]

    @property
    def damaged(self) -> bool:
        return any(fault.severity == "damage" for fault in self.faults)

    @property
    def verdict(self) -> str:
        """One sentence: from where Spark can go on."""
        newest, whole = self.inspected.newest_committed, self.inspected.newest_whole
        if newest is None:
            return "no batch is committed" if self.damaged else "no batch is committed yet"
        if whole != newest:
            left = "no older one is whole" if whole is None else f"the newest that is whole is {whole}"
            return f"batch {newest} can't be loaded, and {left}"
        if self.damaged:
            return f"batch {newest} is whole, and yet not all is as it was"
        return f"a restart goes on after batch {newest}, which is whole"

    @property
    def healable(self) -> bool:
        """Whether the checkpoint that it was compared with can bring back what is wrong."""
        return self.compared is not None and bool(self.compared.others) and not self.compared.refused


def check_directory(
    directory: Directory,
    records: PipelineRecords | None = None,
    *,
    read_all: bool = False,
    progress: Progress | None = None,
) -> DirectoryChecked:
    """Look at a directory and, given the records of a pipeline, compare it with the newest checkpoint of it."""
    inspected = inspect(directory, read_all=read_all, progress=progress)
    if records is None:
        return DirectoryChecked(inspected, None, None, tuple(inspected.faults))
    try:
        manifest = find_checkpoint(records, directory)
        what = f"pipeline {records.name!r} has no checkpoint of it: there is nothing to compare it with"
    except DamagedRecord as error:
        manifest, what = None, f"it can't be compared: {error.message}"
    if manifest is None:
        fault = Fault("warning", directory.url, what)
        return DirectoryChecked(inspected, None, None, (*inspected.faults, fault))
    compared = compare(records, directory, manifest, progress)
    found = {other.name: other for other in compared.others}
    # What both have found is told once, by the one that has the bytes to compare with.
    faults = [_sharper(fault, found.get(fault.name)) for fault in inspected.faults]
    told = {fault.name for fault in faults}
    faults += [_fault(other, compared.epoch) for other in compared.others if other.name not in told]
    severity: Severity = "damage" if compared.comparable else "warning"
    faults += [Fault(severity, directory.url, why) for why in compared.refused]
    return DirectoryChecked(inspected, compared, f"{records.name}@slot:{manifest.at}", tuple(faults))


def _sharper(fault: Fault, other: Other | None) -> Fault:
    if other is None or fault.severity == "damage":
        return fault
    return Fault("damage", fault.name, fault.what, fault.means, fault.batches)


def _fault(other: Other, epoch: int) -> Fault:
    means = meaning(other.name, missing=other.why == "missing")
    return Fault("damage", other.name, WHY[other.why], means, (epoch,))


def describe_directory(checked: DirectoryChecked) -> dict[str, Any]:
    """The outcome of a check as plain JSON values."""
    it = checked.inspected
    compared = checked.compared
    return {
        "ok": not checked.damaged,
        "verdict": checked.verdict,
        **plain(it),
        "newest_committed": it.newest_committed,
        "newest_whole": it.newest_whole,
        "faults": plain(checked.faults),
        "compared": None
        if compared is None
        else {
            "checkpoint": checked.checkpoint,
            "checkpoint_id": compared.manifest.checkpoint_id,
            "epoch": compared.manifest.epoch,
            "files": compared.files,
            "bytes_read": compared.bytes_read,
            "differing": plain(compared.others),
            "refused": compared.refused,
        },
    }
