"""Putting a trimmed log in the place of a file sink's own, which is kept beside it. Can be killed and run again.

No query may be writing to the sink. On a disk readers see the old log or the new one; in an object store they may see
the old log with its newest batches gone, or fail, but never a log with a hole in it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.ids import new_token, now_ms
from holdfast.laying import Folder
from holdfast.spark.places import SparkPlace
from holdfast.spark.sink_log import KEPT, LOG, Trimmed, batch_of
from holdfast.store.contract import Store
from holdfast.store.disk import failure, make_folders, sync_below

__all__ = ["swap_in"]

NEXT = f"{LOG}.next"
AT_CWD, EXCHANGE = -100, 2
NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV)
_RENAME: Callable[..., int] | None = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def swap_in(sink: SparkPlace, trimmed: Trimmed) -> str | None:
    """Swap the log of a sink; gives the address of the old one, or None if there was nothing to do."""
    if sink.folder is not None:
        return _in_folder(sink.folder, trimmed)
    kept = _in_store(sink.store(), trimmed)
    return f"{sink.spelled()}/{kept}" if kept else None


def _in_folder(root: Path, trimmed: Trimmed) -> str | None:
    current, following = root / LOG, root / NEXT
    kept: Path | None = None
    try:
        was_cut_off = following.exists()
        if not was_cut_off and _holds(current, trimmed):
            return None
        make_folders(str(root / KEPT))
        if was_cut_off:
            # What lies here was swapped out, or never in: it is kept either way.
            kept = _kept(root, trimmed) if current.exists() else None
            following.rename(kept or current)
        if not _holds(current, trimmed):
            with Folder(following).opened() as folder:
                for name, data in trimmed.files.items():
                    folder.write(name, data)
            kept = _exchange(following, current, _kept(root, trimmed))
        sync_below(root, deep=False)
        sync_below(root / KEPT, deep=False)
    except OSError as error:
        raise failure(error, str(root), f"swap {LOG}") from error
    return str(kept) if kept else None


def _exchange(following: Path, current: Path, kept: Path) -> Path | None:
    """Have the two folders change names, then give the old one the name under which it is kept."""
    if not current.exists():
        following.rename(current)
        return None
    if _RENAME is None or _RENAME(AT_CWD, os.fsencode(following), AT_CWD, os.fsencode(current), EXCHANGE) != 0:
        problem = ctypes.get_errno()
        if _RENAME is not None and problem not in NO_EXCHANGE:
            raise OSError(problem, os.strerror(problem), str(current))
        # For an instant there is no log; the next run puts it in place if this one ends here.
        current.rename(kept)
        following.rename(current)
        return kept
    following.rename(kept)
    return kept


def _holds(folder: Path, trimmed: Trimmed) -> bool:
    """Whether a log has all that the trimmed one has, and nothing after it."""
    there = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
    return not _beyond(there, trimmed) and all(
        name in there and there[name].read_bytes() == data for name, data in trimmed.files.items()
    )


def _beyond(names: Iterable[str], trimmed: Trimmed) -> list[str]:
    """The entries after the batch, newest first."""
    found = {name: batch for name in names if (batch := batch_of(name)) is not None and batch > trimmed.epoch}
    return sorted(found, key=found.__getitem__, reverse=True)


def _in_store(store: Store, trimmed: Trimmed) -> str | None:
    names = [info.key.removeprefix(f"{LOG}/") for info in store.list(f"{LOG}/")]
    there = [name for name in names if batch_of(name) is not None]
    wanted = {
        name: data for name, data in trimmed.files.items() if name not in there or store.get(f"{LOG}/{name}") != data
    }
    surplus = _beyond(there, trimmed)
    if not wanted and not surplus:
        return None
    kept = str(_kept(Path(), trimmed))
    for name in there:
        store.copy(f"{LOG}/{name}", f"{kept}/{name}")
    # All that the shorter log needs, the joined entries last; then the newest go, one by one, so that at no time an
    # entry stands without those before it.
    for name in sorted(wanted, key=lambda name: (name.endswith(".compact"), batch_of(name))):
        store.put(f"{LOG}/{name}", wanted[name])
    for name in surplus:
        store.delete([f"{LOG}/{name}"])
    return kept if there else None


def _kept(root: Path, trimmed: Trimmed) -> Path:
    return root / KEPT / f"epoch-{trimmed.epoch}-{now_ms()}-{new_token()[:8]}"
