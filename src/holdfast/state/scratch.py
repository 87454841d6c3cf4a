"""A folder for a while: what of a checkpoint is laid down there, verified, is gone afterwards."""

# Plain os calls, as in laying.py: thousands of small files.
# ruff: noqa: PTH103, PTH118, PTH120

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.checkpoint import Checkpoint
from holdfast.laying import Folder, Place, Progress, lay_files
from holdfast.spark.moving import Changes, Moving
from holdfast.state.files import NO_PARTITION, for_reading, with_state_ids
from holdfast.state.inventory import Inventory
from holdfast.store.contract import Buffer
from holdfast.store.disk import write_all

__all__ = ["lay_operator", "scratch_folder"]


@contextmanager
def scratch_folder(purpose: str = "state", above: str | None = None) -> Iterator[Path]:
    """A new folder in the system's place for such things (TMPDIR), or in the one named, removed at the end.

    What a killed process left is removed by the next one with the same purpose: whether its owner lives is told by a
    lock. With a session on a cluster it must lie where all executors see it.
    """
    home = Path(above or tempfile.gettempdir()) / f"holdfast-{purpose}-{os.getuid()}"
    with Folder(home).beside(remove_dead=True) as folder:
        # Rows of state are nobody else's business.
        folder.chmod(0o700)
        yield folder


class _Unsynced(Place):
    """A folder that need not outlive a crash."""

    costly = False

    def __init__(self, root: Path) -> None:
        self.url = str(root)
        self._root = root

    def write(self, name: str, data: Buffer) -> None:
        self.write_stream(name, [data])

    def write_stream(self, name: str, chunks: Iterable[Buffer]) -> None:
        path = os.path.join(self._root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            for chunk in chunks:
                write_all(fd, chunk)
        finally:
            os.close(fd)


def lay_operator(
    checkpoint: Checkpoint,
    inventory: Inventory,
    folder: Path,
    operator: int,
    partition: int | None = None,
    progress: Progress | None = None,
) -> str:
    """Lay down what Spark's reader needs of one operator, or of one of its partitions, and give the address of it.

    Raises DamagedArtifact if a byte is not what was captured.
    """
    manifest, records = checkpoint.manifest, checkpoint.pipeline.records
    moving = Moving(records, manifest)
    place, root = _Unsynced(folder), f"file:{folder}"
    names = for_reading(moving.files, manifest.epoch, operator, partition)
    changed = moving.rewritten(Changes(), root).files
    commit = f"commits/{manifest.epoch}"
    if partition not in (None, NO_PARTITION) and operator in inventory.state_ids:
        ids = {operator: [inventory.state_ids[operator][partition]]}
        changed[commit] = with_state_ids(checkpoint.load(manifest.files[commit]), ids)
    plain = {name: manifest.files[held] for name, held in names.items() if held not in changed}
    lay_files(records, plain, place, progress)
    for name, held in names.items():
        if held in changed:
            place.write(name, changed[held])
    return root
