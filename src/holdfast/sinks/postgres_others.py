"""What others have changed in a table in PostgreSQL since a sink wrote it, by the transactions that rows came with.

The server keeps with each row, in xmin, which transaction wrote it last; a sink keeps its own beside the rows that it
replaced. No row has to be compared for it, and nothing is written more than a number.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.sinks.sql_marker import Database
from holdfast.sinks.sql_rows import EPOCH, EXISTED, quoted

__all__ = ["XID", "changed_by_others", "own_again", "written_by_others"]

XID = "_holdfast_xid"
"""The transaction that replaced a row which is kept; none in what an older version of Holdfast has kept."""

_NOT_OURS = "t.xmin::text::bigint <> b.xid % 4294967296"
"""In a row, the server leaves out how often its numbers have begun anew."""


def changed_by_others(db: Database, table: str, before: str, key: Sequence[str], epoch: int) -> tuple[int, int]:
    """How many rows that were put there after an epoch others have changed since, and how many they took out."""
    keys, same = quoted(*key), " AND ".join(f"t.{quoted(name)} = b.{quoted(name)}" for name in key)
    first, last = f"(array_agg({EXISTED} ORDER BY {EPOCH}))[1]", f"(array_agg({XID} ORDER BY {EPOCH} DESC))[1]"
    kept = f"SELECT {keys}, {first} AS was, {last} AS xid FROM {before} WHERE {EPOCH} > {epoch:d} GROUP BY {keys}"
    gone = "t.xmin IS NULL AND b.was = 1"
    counts = f"SELECT count(*) FILTER (WHERE {_NOT_OURS}), count(*) FILTER (WHERE {gone})"
    [(changed, taken)] = db.execute(f"{counts} FROM ({kept}) AS b LEFT JOIN {table} AS t ON {same}")
    return int(changed), int(taken)


def written_by_others(db: Database, table: str, before: str) -> int:
    """How many rows of a table that was written as a whole others have put in or changed since."""
    last = f"SELECT {XID} AS xid FROM {before} WHERE {EXISTED} = 0 ORDER BY {EPOCH} DESC LIMIT 1"
    [(count,)] = db.execute(f"SELECT count(*) FROM {table} AS t, ({last}) AS b WHERE {_NOT_OURS}")
    return int(count)


def own_again(db: Database, before: str, key: Sequence[str], epoch: int) -> None:
    """Take rows for our own that going back to an epoch is about to write."""
    keys, later = quoted(*key), f"{EPOCH} > {epoch:d}"
    which = f" AND ({keys}) IN (SELECT {keys} FROM {before} WHERE {later})" if key else f" AND {EXISTED} = 0"
    db.execute(f"UPDATE {before} SET {XID} = txid_current() WHERE {EPOCH} <= {epoch:d}{which}")
