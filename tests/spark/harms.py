"""The three harms that a disk or a person does to a file: it is removed, cut short, or one bit of it turns over."""

from __future__ import annotations

from pathlib import Path

__all__ = ["HARMS", "harm", "sidecar", "without_sidecars"]

HARMS = ("removed", "cut short", "one bit flipped")


def harm(path: Path, how: str, at: float = 0.5) -> None:
    """Do one of them in place; `at` says where in the file. Hadoop's checksum beside it stays as it was."""
    if how == "removed":
        path.unlink()
        return
    data = bytearray(path.read_bytes())
    position = int(len(data) * at)
    if how == "cut short":
        del data[position:]
    else:
        data[position] ^= 1
    path.write_bytes(data)


def sidecar(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


def without_sidecars(root: Path) -> None:
    """As in an object store, or after a restore: nothing of Hadoop's lies beside the files."""
    for path in root.rglob(".*.crc"):
        path.unlink()
