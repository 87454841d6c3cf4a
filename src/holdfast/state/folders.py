"""A checkpoint directory under our own hands: schemas pointed elsewhere, what a restart does not need taken away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import StateNotKept
from holdfast.spark.cut import Cut, cut_at
from holdfast.spark.edits import rewrite_schema_paths
from holdfast.spark.intact import sidecar_of
from holdfast.store.local_directory import LocalDirectory

__all__ = ["cut_of", "keep_only", "schemas_here"]


@contextmanager
def schemas_here(folder: Path, root: str) -> Iterator[None]:
    """Have Spark find the schemas in a folder that is to be moved to `root` afterwards, where they point again."""
    _point(folder, f"file:{folder}")
    yield
    _point(folder, root)


def _point(folder: Path, root: str) -> None:
    for path in [*folder.glob("state/*/_metadata/v2/*")]:
        if path.name.isdecimal():
            # Hadoop's checksum of the old text would make the new one unreadable.
            Path(sidecar_of(str(path))).unlink(missing_ok=True)
            path.write_bytes(rewrite_schema_paths(path.read_bytes(), root))


def cut_of(folder: Path, epoch: int, checkpoint: str) -> Cut:
    """The cut after a batch in a folder. Raises StateNotKept if it is not whole there."""
    directory = LocalDirectory(folder)
    found = cut_at(directory, directory.look(), epoch)
    if not isinstance(found, Cut):
        raise StateNotKept(checkpoint, f"batch {epoch} is not whole: {found}")
    return found


def keep_only(folder: Path, cut: Cut) -> tuple[int, int]:
    """Remove all that is no part of a cut, and give how many files and bytes are left."""
    for above, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(above, name)
            if path.relative_to(folder).as_posix() not in cut.files:
                path.unlink()
        if above != str(folder) and not any(Path(above).iterdir()):
            Path(above).rmdir()
    return len(cut.files), sum(stat.size for stat in cut.files.values())
