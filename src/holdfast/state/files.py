"""Which files of a checkpoint hold an operator's state, and what they are called elsewhere. Pure functions.

Nothing inside a state file tells of which operator, partition or version it is: that stands in its name and, in
checkpoint format 2, in the commit log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from holdfast.spark.logs import Malformed
from holdfast.spark.state import StoreFolder, parse_state_file

__all__ = ["NO_PARTITION", "for_reading", "is_of_store", "regrown_name", "with_state_ids"]

SCHEMA = "_metadata/schema"
NO_PARTITION = -1
"""For what tells of state without holding any: the schemas of its rows."""


def for_reading(names: Iterable[str], epoch: int, operator: int, partition: int | None = None) -> dict[str, str]:
    """The files that Spark's reader needs of one operator: each name in the new directory, with that in the checkpoint.

    With a `partition` only its files, under the names of partition 0: the reader takes a directory whose partitions
    begin at 0 and have no gaps.
    """
    logs = {"metadata", f"offsets/{epoch}", f"commits/{epoch}"}
    found: dict[str, str] = {}
    for name in names:
        if name in logs:
            found[name] = name
        elif name.startswith(f"state/{operator}/"):
            here = name if partition is None else _as_first(name, operator, partition)
            if here is not None:
                found[here] = name
    return found


def _as_first(name: str, operator: int, partition: int) -> str | None:
    inner = name.split("/")[2:]
    if not inner[0].isdecimal() or name.endswith(SCHEMA):
        return name
    return "/".join(["state", str(operator), "0", *inner[1:]]) if inner[0] == str(partition) else None


def is_of_store(name: str, operator: int) -> bool:
    """Whether a file is part of a state store of this operator, and no description of it."""
    found = parse_state_file(name)
    return found is not None and found.at.operator == operator


def regrown_name(name: str, operator: int, version: int) -> str:
    """What a file of the first version of operator 0 is called as one of another operator, at another version.

    A first delta holds all there is, in the very form of a snapshot: as a later version it is one.
    """
    found = parse_state_file(name)
    if found is None:
        raise Malformed(f"{name!r} is no state file")
    folder = StoreFolder(operator, found.at.partition, found.at.store).path
    plain = name.rpartition("/")[2]
    if found.version is None:
        return f"{folder}/{name.split('/')[-2]}/{plain}"
    if found.version != 1:
        raise Malformed(f"{name!r} is not of the first version")
    ending = plain.removeprefix("1").replace(".delta", ".snapshot")
    return f"{folder}/{version}{ending}"


def with_state_ids(commit: bytes, ids: Mapping[int, Sequence[Sequence[str]]]) -> bytes:
    """An entry of the commit log with other ids for some operators; without any, it is as it was."""
    if not ids:
        return commit
    first, _, rest = commit.decode().partition("\n")
    fields = json.loads(rest.partition("\n")[0])
    held = fields.get("stateUniqueIds") or {}
    fields["stateUniqueIds"] = {**held, **{str(operator): list(map(list, every)) for operator, every in ids.items()}}
    return f"{first}\n{json.dumps(fields, separators=(',', ':'))}".encode()
