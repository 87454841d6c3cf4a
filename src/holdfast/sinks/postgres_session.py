"""Sessions with a PostgreSQL server: opened when needed, named by whom they work for, and without a word of secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

from holdfast.errors import BadValue, HoldfastError, SinkUnavailable, SinkUnfit
from holdfast.sinks.postgres_types import on_the_wire
from holdfast.sinks.sql_marker import Database
from holdfast.sinks.sql_rows import remembering

__all__ = ["Locked", "Session", "Sessions", "shown", "take_turns"]

_UNFIT = ("0A", "22", "23", "2F", "38", "39", "3F", "42", "44", "54", "P0")
"""Classes of SQLSTATE that say that these rows, or this table, will never do."""


class Locked(SinkUnavailable):
    """Somebody else has held on to what was waited for."""


class Session:
    """One connection, with our own names for what goes wrong."""

    def __init__(self, connection: adbc.Connection, sink: Callable[[], str]) -> None:
        self._connection = connection
        self._sink = sink
        self.backend = (0, "")
        """The process that serves it, and since when."""
        self.failed = False
        """Whether what the server makes of it is not known any more."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            with self._connection.cursor() as cursor:
                if values:
                    cursor.execute(re.sub(r"\?(\d)", r"$\1", statement), values)
                else:
                    cursor.execute(statement)
                found: list[tuple[Any, ...]] = cursor.fetchall()
                return found
        except adbc.Error as error:
            raise self._told(statement.split()[0], error) from error

    def fill(self, schema: str, table: str, rows: pa.RecordBatchReader, kinds: Mapping[str, str]) -> None:
        """Bring rows into a table whose columns are of these types, by one COPY: all of them or none."""
        failed: list[Exception] = []
        batches = remembering((self.encoded(batch, kinds) for batch in rows), failed)
        encoded = self.encoded(pa.RecordBatch.from_pylist([], rows.schema), kinds).schema
        try:
            with self._connection.cursor() as cursor:
                reader = pa.RecordBatchReader.from_batches(encoded, batches)
                cursor.adbc_ingest(table, reader, mode="append", db_schema_name=schema)
        except adbc.Error as error:
            self.failed = True
            if failed:
                raise failed[0] from None
            raise self._told("load", error) from error

    def encoded(self, batch: pa.RecordBatch, kinds: Mapping[str, str]) -> pa.RecordBatch:
        """Rows as they go over the wire. Raises SinkUnfit for values that a type can't hold."""
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                columns.append(on_the_wire(column, kinds[name]))
            except pa.ArrowInvalid as error:
                raise SinkUnfit(self._sink(), f"the column {name} is {kinds[name]}: {error}") from error
        return pa.RecordBatch.from_arrays(columns, batch.schema.names)

    def is_alive(self) -> bool:
        try:
            self.execute("SELECT 1")
        except HoldfastError:
            return False
        return True

    def close(self) -> None:
        with suppress(adbc.Error):
            self._connection.close()

    def _told(self, action: str, error: adbc.Error) -> HoldfastError:
        """Our own error for one of the driver's, in the server's own words."""
        details = {_plain(key): _plain(value) for key, value in error.details or []}
        words = [details.get(f"PG_DIAG_MESSAGE_{part}") for part in ("PRIMARY", "DETAIL")]
        why = ": ".join(filter(None, words)) or str(error).strip()
        state = error.sqlstate or ""
        if state == "55P03":
            return Locked(self._sink(), action, f"somebody else has held on to it for too long ({why})")
        if state.startswith(_UNFIT):
            return SinkUnfit(self._sink(), why)
        self.failed = True
        return SinkUnavailable(self._sink(), action, why)


class Sessions:
    """Sessions that are kept for the next use; one that failed is not. Any thread may open one.

    `sink` tells the name that stands in errors: a pipeline gives a sink its name when it is made already.
    """

    def __init__(self, url: str, sink: Callable[[], str]) -> None:
        self.url = url
        self._secrets = _secrets(_split(url))
        self._sink = sink
        self._idle: list[Session] = []
        self._lost: list[tuple[int, str]] = []
        self.schema = ""
        """Where names without a schema belong, as the server told; known once a session was open."""

    def begin(self, name: str, patience: float) -> None:
        """Begin anew: by which name the server knows all sessions from now on, and how long they wait for a lock."""
        self.close()
        self._settings = {
            "application_name": name,
            "lock_timeout": f"{patience:g}s",
            "client_min_messages": "warning",
        }

    @contextmanager
    def open(self) -> Iterator[Session]:
        session = self._take() or self._connect()
        try:
            yield session
        except BaseException as error:
            if session.failed or not isinstance(error, Exception):
                session.close()
                self._lost.append(session.backend)
            else:
                self._idle.append(session)
            raise
        self._idle.append(session)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> Session | None:
        while True:
            try:
                session = self._idle.pop()
            except IndexError:
                return None
            # The server may have been restarted meanwhile.
            if session.is_alive():
                return session
            session.close()

    def _connect(self) -> Session:
        try:
            session = Session(adbc.connect(self.url, autocommit=True), self._sink)
        except adbc.Error as error:
            why = str(error).strip()
            for secret in self._secrets:
                why = why.replace(secret, "***")
            # Not chained: the driver quotes what it can't read.
            raise SinkUnavailable(self._sink(), "connect", why) from None
        settings = self._settings
        chosen = ", ".join(f"set_config('{key}', ?{number + 1}, false)" for number, key in enumerate(settings))
        try:
            session.execute(f"SELECT {chosen}", tuple(settings.values()))
            # A commit that the server forgets after a crash would leave the sink behind what was decided.
            off = "current_setting('synchronous_commit') = 'off'"
            session.execute(f"SELECT set_config('synchronous_commit', 'on', false) WHERE {off}")
            told = "current_schema(), pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
            [(schema, *backend)] = session.execute(f"SELECT {told}")
            session.backend = (backend[0], backend[1])
            while self._lost:
                # The server may not have noticed yet that nobody is there any more, and keep its locks for hours.
                same = "pid = ?1::integer AND backend_start::text = ?2"
                session.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {same}", self._lost[-1])
                self._lost.pop()
        except BaseException:
            session.close()
            raise
        self.schema = schema or "public"
        return session


def take_turns(db: Database, what: str) -> None:
    """Wait until no other transaction has taken this turn, and have it until one's own ends."""
    db.execute("SELECT pg_advisory_xact_lock(hashtextextended(?1, 0))", (f"holdfast {what}",))


def shown(url: str) -> str:
    """An address without user, password and options."""
    parts = _split(url)
    options = parse_qs(parts.query)
    host = parts.netloc.rpartition("@")[2] or ",".join(options.get("host", ["localhost"]))
    database = parts.path.strip("/") or ",".join(options.get("dbname", [""]))
    return f"postgresql://{host}/{database}"


def _split(url: str) -> SplitResult:
    """The parts of an address that can only be read in one way: of what can't, the driver would tell pieces."""
    what = "url of a Postgres sink"
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadValue(what, "it is no address") from None
    hosts = parts.netloc.rpartition("@")[2].split(",")
    ports = all(re.fullmatch(r"(\[[^\]]*\]|[^:]*)(:\d*)?", host) for host in hosts)
    stray = parts.netloc.count("@") > 1 or ("@" not in parts.netloc and "@" in url) or parts.fragment
    if parts.scheme not in ("postgresql", "postgres") or "//" not in url:
        raise BadValue(what, "such as postgresql://user:password@host:5432/database")
    if stray or not ports or re.search(r"%(?![0-9A-Fa-f]{2})", url):
        raise BadValue(what, "special characters in a user or a password are percent-encoded, as %40 for @")
    return parts


def _secrets(parts: SplitResult) -> list[str]:
    options = parse_qs(parts.query)
    found = [parts.password or "", *options.get("password", []), *options.get("sslpassword", [])]
    return [secret for value in found for secret in {value, unquote(value)} if secret]


def _plain(text: str | bytes) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text
