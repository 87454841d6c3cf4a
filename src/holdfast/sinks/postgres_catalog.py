"""What PostgreSQL's catalog says of a table: its columns and rights, and what in it could refuse a row."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.sinks.contract import WriteMode
from holdfast.sinks.sql_marker import Database
from holdfast.sinks.sql_rows import Column

__all__ = [
    "SYSTEM_COLUMNS",
    "columns_of",
    "has_own_rules",
    "has_schema",
    "is_plain",
    "key_index",
    "kind_of",
    "may_make_tables",
    "may_see_all",
    "may_write",
    "needed_columns",
    "unlogged_tables",
    "what_holds_rows",
    "writable_columns",
]

# What only the table itself can tell of a row, before it is in: whatever follows from its other rows or from other
# tables, from a program, or from the size of a value in an index. NOT NULL and CHECK a table that is like it has too.
_OWN_RULES = """
SELECT 1 FROM pg_class c WHERE c.oid = to_regclass(?1) AND (
  c.relkind <> 'r' OR c.relhastriggers OR c.relhasrules OR c.relrowsecurity
  OR EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
             AND a.attname = ANY (?2) AND (a.attgenerated <> '' OR a.attidentity = 'a'))
  OR EXISTS (SELECT 1 FROM pg_constraint r JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (r.conkey)
             WHERE r.conrelid = c.oid AND r.contype = 'c' AND NOT a.attname = ANY (?2))
  OR EXISTS (SELECT 1 FROM pg_index i LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
             WHERE i.indrelid = c.oid AND i.indexrelid::text <> ?3
             AND (i.indisunique OR i.indisexclusion OR 0 = ANY (i.indkey) OR a.attlen < 0)))
"""
_NOT_PLAIN = """
SELECT 1 WHERE current_setting('server_encoding') <> 'UTF8'
  OR EXISTS (SELECT 1 FROM pg_constraint WHERE conrelid = to_regclass(?1))
  OR EXISTS (SELECT 1 FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
             WHERE a.attrelid = to_regclass(?1) AND a.attnum > 0 AND (a.attnotnull OR t.typtype <> 'b'))
"""
_KEY_INDEX = """
SELECT i.indexrelid::text FROM pg_index i WHERE i.indrelid = to_regclass(?1)
  AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
  AND NOT EXISTS (SELECT 1 FROM unnest(i.indkey::int2[], i.indcollation::oid[]) AS k (attnum, compared)
                  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                  WHERE a.attcollation <> compared)
  AND (SELECT array_agg(a.attname::text ORDER BY a.attname::text COLLATE "C") FROM pg_attribute a
       WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])) = ?2
"""
_COLUMNS = """
SELECT a.attname::text, CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod)
                                       ELSE format_type(a.atttypid, a.atttypmod) END
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(?1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_WRITABLE = """
SELECT a.attname::text, CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod)
                                       ELSE format_type(a.atttypid, a.atttypmod) END
       || CASE WHEN a.attcollation IN (0, t.typcollation) THEN '' ELSE
          (SELECT format(' COLLATE %I.%I', n.nspname, c.collname) FROM pg_collation c
           JOIN pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = a.attcollation) END,
       a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity <> ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = to_regclass(?1) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum
"""
_NEEDED = """
SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = to_regclass(?1) AND a.attnum > 0 AND a.attnotnull
AND NOT a.attisdropped AND NOT a.atthasdef AND a.attidentity = ''
"""
_UNLOGGED = """
SELECT relname::text FROM pg_class WHERE relpersistence = 'u' AND relkind = 'r'
AND relnamespace = to_regnamespace(?1) AND starts_with(relname::text, ?2)
"""
_RIGHTS: dict[WriteMode, Sequence[str]] = {
    "append": ("INSERT",),
    "upsert": ("INSERT", "SELECT", "UPDATE"),
    "overwrite": ("INSERT", "SELECT"),
}
SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
"""Columns that every table has, and nobody else may name his own so."""


def columns_of(db: Database, table: str) -> dict[str, str]:
    """The columns and their types, in order, those of a domain as what it is made of; none if there is no table."""
    return dict(db.execute(_COLUMNS, (table,)))


def writable_columns(db: Database, table: str) -> dict[str, Column]:
    """The columns that the table does not compute; one that counts by itself has a default as well."""
    found = db.execute(_WRITABLE, (table,))
    return {name: Column(kind, needed, "NULL" if counts else default) for name, kind, needed, default, counts in found}


def kind_of(db: Database, table: str) -> str | None:
    """What the catalog calls it: r and p are tables."""
    found = db.execute("SELECT relkind::text FROM pg_class WHERE oid = to_regclass(?1)", (table,))
    return str(found[0][0]) if found else None


def needed_columns(db: Database, table: str) -> list[str]:
    """The columns that every row must give a value for."""
    return [name for (name,) in db.execute(_NEEDED, (table,))]


def key_index(db: Database, table: str, key: Sequence[str]) -> str:
    """The unique index on exactly these columns; empty if there is none."""
    found = db.execute(_KEY_INDEX, (table, sorted(key)))
    return str(found[0][0]) if found else ""


def has_own_rules(db: Database, table: str, columns: Sequence[str], apart_from: str = "") -> bool:
    """Whether it could refuse rows with these columns that a table like it has taken; one index may be left out."""
    return bool(db.execute(_OWN_RULES, (table, list(columns), apart_from)))


def is_plain(db: Database, table: str, columns: Sequence[str]) -> bool:
    """Whether it takes whatever its types can hold; so does one that is not there."""
    return not db.execute(_NOT_PLAIN, (table,)) and not has_own_rules(db, table, columns)


def may_write(db: Database, table: str, mode: WriteMode, columns: Sequence[str], key: Sequence[str]) -> bool:
    """Whether rows with these columns may be written to it."""
    changed = [name for name in columns if name not in key]
    for right in _RIGHTS[mode]:
        lacks = f"NOT has_column_privilege(?1, name, '{right}')"
        named = changed if right == "UPDATE" else list(columns)
        if named and db.execute(f"SELECT 1 FROM unnest(?2::text[]) AS name WHERE {lacks}", (table, named)):
            return False
    return mode != "overwrite" or bool(db.execute("SELECT has_table_privilege(?1, 'DELETE')", (table,))[0][0])


def what_holds_rows(db: Database, table: str, read: Sequence[str]) -> str | None:
    """Why rows that are found by these columns can't be taken out of it; None if they can."""
    rights = ["has_table_privilege(?1, 'DELETE')"]
    rights += [f"has_column_privilege(?1, ?{n}, 'SELECT')" for n in range(2, len(read) + 2)]
    if not db.execute(f"SELECT {' AND '.join(rights)}", (table, *read))[0][0]:
        return "the user of the database may not take rows out of it"
    if db.execute("SELECT row_security_active(to_regclass(?1))", (table,))[0][0]:
        return "it has row security, and rows that the user may not see would stay"
    return None


def may_see_all(db: Database, table: str) -> bool:
    """Whether every column may be read, also those that the server itself keeps."""
    return bool(db.execute("SELECT has_table_privilege(?1, 'SELECT')", (table,))[0][0])


def may_make_tables(db: Database, schema: str) -> bool:
    return bool(db.execute("SELECT has_schema_privilege(?1, 'CREATE')", (schema,))[0][0])


def has_schema(db: Database, schema: str) -> bool:
    return bool(db.execute("SELECT 1 FROM pg_namespace WHERE nspname = ?1", (schema,)))


def unlogged_tables(db: Database, schema: str, prefix: str) -> list[str]:
    """The unlogged tables of a schema, given as it stands in a statement, whose names begin so."""
    return [name for (name,) in db.execute(_UNLOGGED, (schema, prefix))]
