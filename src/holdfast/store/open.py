"""From an address to a store: which backend, which place in it, and which options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from holdfast.errors import BadName, BadURL
from holdfast.store.contract import Store
from holdfast.store.file import FileStore
from holdfast.store.keys import check_key
from holdfast.store.memory import MemoryStore
from holdfast.store.retry import RetryingStore, RetryPolicy

if TYPE_CHECKING:
    from holdfast.store.clients import Cloud

__all__ = ["open_store", "redact"]

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
USER = re.compile(r"(?<=//)[^/?@]*@")

CLOUDS: dict[str, Cloud] = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
ELSEWHERE = {
    "dbfs": "on Databricks give the path instead: /dbfs/… or /Volumes/…",
    "hdfs": "HDFS has no create-if-absent that Holdfast could use; give an object store or a mounted path",
    "wasb": "write it as abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…",
    "wasbs": "write it as abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…",
    "http": "give the server as an endpoint: s3://BUCKET/PREFIX?endpoint=…",
    "https": "give the server as an endpoint: s3://BUCKET/PREFIX?endpoint=…",
}
SHOWN = ("account_name", "endpoint", "region")
"""Options that an address may show; all others are held to be secrets."""


def open_store(url: str, options: Mapping[str, str] | None = None, retry: RetryPolicy | None = None) -> Store:
    """The store at an address: a path, or file://, memory://, s3://, gs://, az:// or abfss://.

    Nothing is sent or made yet. `options` win over those in the address (`?endpoint=…&region=…`), and those over the
    environment (AWS_*, GOOGLE_*, AZURE_STORAGE_*). Secrets are best left to the environment.
    """
    given = dict(options or {})
    scheme = found[1].lower() if (found := SCHEME.match(url)) else ""
    if scheme in CLOUDS:
        return _open_cloud(url, scheme, given, retry or RetryPolicy())
    if scheme in ELSEWHERE:
        raise BadURL(redact(url), ELSEWHERE[scheme])
    if given or (scheme and "?" in url):
        raise BadURL(redact(url), "only a cloud store takes options")
    if scheme == "memory":
        return MemoryStore(url.partition("://")[2].strip("/"))
    if scheme == "file":
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            raise BadURL(redact(url), "a local address is file:///PATH, without a host")
        return FileStore(unquote(parts.path))
    if scheme or not url:
        raise BadURL(redact(url), f"the scheme {scheme!r} is not known" if scheme else "the address is empty")
    return FileStore(Path(url).expanduser())


def redact(url: str) -> str:
    """The address as it may be shown: without a user, and without the options that may be secret."""
    address, _, query = url.partition("?")
    shown = [(name, USER.sub("", value)) for name, value in parse_qsl(query) if name in SHOWN]
    # The container of an abfss address stands where others have their user.
    if not address.lower().startswith(("abfs://", "abfss://")):
        address = USER.sub("***@", address)
    return f"{address}?{urlencode(shown, safe='/:')}" if shown else address


def _open_cloud(url: str, scheme: str, given: Mapping[str, str], retry: RetryPolicy) -> Store:
    address, _, query = url.partition("?")
    place, _, prefix = address.partition("://")[2].partition("/")
    in_address = dict(parse_qsl(query, keep_blank_values=True))
    if scheme.startswith("abfs"):
        place, in_host = _azure_host(url, place)
        in_address = in_host | in_address
    if "@" in place:
        raise BadURL(redact(url), "a user or key does not belong here: use the environment or options")
    if not place:
        raise BadURL(redact(url), "the name of the bucket or container is missing")
    prefix = prefix.strip("/")
    if prefix:
        try:
            check_key(prefix)
        except BadName:
            raise BadURL(redact(url), f"{prefix!r} is no folder: empty, '.' and '..' segments are not taken") from None

    options = {**in_address, **given}
    shown = redact(f"{address.rstrip('/')}?{urlencode([(name, options[name]) for name in SHOWN if name in options])}")
    # obstore is slow to import, and most uses of Holdfast do not need it.
    from holdfast.store.clients import connect

    store = connect(CLOUDS[scheme], place, prefix, options, url=shown, retry_seconds=retry.budget_seconds)
    return RetryingStore(store, retry)


def _azure_host(url: str, place: str) -> tuple[str, dict[str, str]]:
    """CONTAINER@ACCOUNT.dfs.HOST taken apart: the container, and the options that the host stands for."""
    container, _, host = place.partition("@")
    account, _, domain = host.partition(".")
    if not (container and account and domain.startswith("dfs.")):
        raise BadURL(redact(url), "the form is abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX")
    if domain == "dfs.core.windows.net":
        return container, {"account_name": account}
    return container, {"account_name": account, "endpoint": f"https://{account}.blob.{domain.removeprefix('dfs.')}"}
