"""Somebody else's files in S3, Google Cloud Storage or Azure. Imported only when such a directory is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from holdfast.errors import ChangedWhileRead, ObjectMissing, StoreFailure
from holdfast.store.cloud_errors import range_is_past_the_end
from holdfast.store.cloud_requests import Requests
from holdfast.store.contract import CHUNK
from holdfast.store.directory import Directory, FileStat, Look, check_within, is_leftover
from holdfast.store.keys import check_key
from holdfast.store.retry import Patience, RetryPolicy, Transient

if TYPE_CHECKING:
    from obstore import ObjectMeta

__all__ = ["CloudDirectory"]

T = TypeVar("T")

OLD_MARKER = "_$folder$"
"""How Hadoop's older clients, and EMR's, name the empty object of a folder."""
AZURE_MARKER = "hdi_isfolder"
"""How Hadoop marks it in Azure: by an attribute, which no listing shows."""


class CloudDirectory(Directory):
    """Objects below a prefix. A stamp is the object's ETag: a server that gives none is refused.

    `client` makes one attempt per request; what may pass is tried again here.
    """

    costly = True

    def __init__(self, url: str, client: ObjectStore, retry: RetryPolicy) -> None:
        self.url = url
        self._client = client
        self._send = Requests(url)
        self._persist = Patience(url, retry)

    def look(self, folder: str = "") -> Look:
        """One listing of all that is below. One of many pages is not of one instant: they come in order of names."""
        prefix = _prefix(folder)

        def listed() -> list[tuple[str, FileStat]]:
            pages = obstore.list(self._client, prefix, chunk_size=1000)
            return [(meta["path"], self._stat(meta)) for page in pages for meta in page]

        return _CloudLook(folder, self._ask("list", folder, listed), self._is_file)

    def folders(self, folder: str = "") -> list[str]:
        prefix = _prefix(folder)
        listed = self._ask("list", folder, lambda: obstore.list_with_delimiter(self._client, prefix))
        return sorted(path.rstrip("/").rpartition("/")[2] for path in listed["common_prefixes"])

    def read(self, name: str) -> tuple[bytes, FileStat]:
        check_key(name)

        def whole() -> tuple[bytes, FileStat]:
            reply = obstore.get(self._client, name)
            stat = self._stat(reply.meta)
            return _complete(bytes(reply.bytes()), stat.size), stat

        return self._ask("read", name, whole)

    def stream(self, name: str) -> tuple[FileStat, Iterator[bytes]]:
        check_key(name)
        meta = self._ask("read", name, lambda: obstore.head(self._client, name))
        return self._stat(meta), self._chunks(name, meta)

    def _chunks(self, name: str, meta: ObjectMeta) -> Iterator[bytes]:
        # In ranges, so that a body that breaks is taken up where it stood.
        for start in range(0, meta["size"], CHUNK):
            yield self._ask("read", name, partial(self._part, name, meta, start))

    def _part(self, name: str, meta: ObjectMeta, start: int) -> bytes:
        """A chunk of this very version of an object."""
        end = min(start + CHUNK, meta["size"])
        try:
            reply = obstore.get(self._client, name, options={"range": (start, end)})
        except BaseError as error:
            if range_is_past_the_end(error):
                raise ChangedWhileRead(self.url, name) from error
            raise
        # Not by a condition in the request: Azure would say of a missing object, too, that it does not hold.
        if reply.meta["e_tag"] != meta["e_tag"]:
            raise ChangedWhileRead(self.url, name)
        return _complete(bytes(reply.bytes()), end - start)

    def _is_file(self, name: str) -> bool:
        """Whether an empty object is a file: the marker of an empty folder looks like one in a listing."""
        try:
            return self._ask("read", name, lambda: AZURE_MARKER not in obstore.get(self._client, name).attributes)
        except ObjectMissing:
            return False  # its key ends in a slash, which the listing does not show

    def _stat(self, meta: ObjectMeta) -> FileStat:
        if not meta["e_tag"]:
            raise StoreFailure(self.url, f"read {meta['path']}", "the server gives no ETag to tell its versions apart")
        # A listing and a reply may differ: in the quotes of the tag, and in how finely they tell the time.
        written = int(meta["last_modified"].timestamp()) * 10**9
        return FileStat(meta["size"], meta["e_tag"].strip('"'), written)

    def _ask(self, action: str, name: str, request: Callable[[], T]) -> T:
        return self._persist(f"{action} {name}", lambda: self._send(action, name, request))


class _CloudLook(Look):
    """A listing, sorted into folders. Empty objects alone are asked for once more, when they come up."""

    def __init__(self, folder: str, found: Iterable[tuple[str, FileStat]], is_file: Callable[[str], bool]) -> None:
        self._folder = folder
        self._is_file = is_file
        self._known_empty: dict[str, bool] = {}
        self._files: dict[str, dict[str, FileStat]] = {"": {}}
        self._folders: dict[str, set[str]] = {}
        self._leftovers: dict[str, list[str]] = {}
        for path, stat in found:
            above, _, name = path.rpartition("/")
            self._enter(above)
            if is_leftover(name):
                self._leftovers.setdefault(above, []).append(name)
            else:
                self._files[above][name] = stat

    def files(self, folder: str) -> dict[str, FileStat | None]:
        found = self._files.get(check_within(self._folder, folder), {})
        above = f"{folder}/" if folder else ""
        return {name: stat for name, stat in found.items() if self._counts(above + name, stat)}

    def folders(self, folder: str) -> list[str]:
        return sorted(self._folders.get(check_within(self._folder, folder), ()))

    def leftovers(self, folder: str) -> list[str]:
        return sorted(self._leftovers.get(check_within(self._folder, folder), ()))

    def stat(self, name: str) -> FileStat | None:
        above, _, plain = check_within(self._folder, name).rpartition("/")
        stat = self._files.get(above, {}).get(plain)
        return stat if stat and self._counts(name, stat) else None

    def _enter(self, folder: str) -> None:
        while folder not in self._files:
            self._files[folder] = {}
            above, _, name = folder.rpartition("/")
            self._folders.setdefault(above, set()).add(name)
            folder = above

    def _counts(self, name: str, stat: FileStat) -> bool:
        """Whether this is a file, and not the marker of a folder."""
        if stat.size:
            return True
        if name in self._files or name.endswith(OLD_MARKER):
            return False
        if name not in self._known_empty:
            self._known_empty[name] = self._is_file(name)
        return self._known_empty[name]


def _prefix(folder: str) -> str:
    return f"{check_within('', folder)}/" if folder else ""


def _complete(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise Transient(f"{len(data)} bytes came instead of {size}")
    return data
