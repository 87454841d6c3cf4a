"""A place as Spark is told it, opened for Holdfast: on the disk a folder, in a cloud a store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.errors import BadURL
from holdfast.store.address import MemoryAddress, read_address, redact
from holdfast.store.contract import Store
from holdfast.store.directory import Directory
from holdfast.store.open import open_directory, open_store
from holdfast.store.retry import RetryPolicy

__all__ = ["SparkPlace"]

S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})


@dataclass(frozen=True)
class SparkPlace:
    """An address as Spark takes it, and how to get there. Raises BadURL at once for one that leads nowhere."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    retry: RetryPolicy | None = None

    def __post_init__(self) -> None:
        if isinstance(read_address(self.url, self.options, as_hadoop=True), MemoryAddress):
            raise BadURL(redact(self.url), "Spark can't read what is in this process's memory")
        if self._scheme == "az":
            why = "Spark does not know az://: write it as abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…"
            raise BadURL(redact(self.url), why)

    @property
    def folder(self) -> Path | None:
        """The path of a local place; None for one in a cloud."""
        address = read_address(self.url, self.options, as_hadoop=True)
        return getattr(address, "path", None)

    def store(self) -> Store:
        """The store of a place in a cloud, rooted there."""
        # Doubled slashes count once for Hadoop, and are refused by our own stores.
        scheme, _, rest = self._address.partition("://")
        query = self.url[len(self._address) :]
        return open_store(f"{scheme}://{re.sub('/+', '/', rest)}{query}", self.options, self.retry)

    def directory(self) -> Directory:
        return open_directory(self.url, self.options, self.retry)

    def beside(self, ending: str) -> SparkPlace:
        """The place whose name is this one's with an ending."""
        return replace(self, url=f"{self._address.rstrip('/')}{ending}{self.url[len(self._address) :]}")

    def spelled(self, before: str = "") -> str:
        """The address to give to Spark; in S3 with the scheme that the query used `before`, else with s3a."""
        if self.folder is not None:
            return self._address.rstrip("/") if self._scheme == "dbfs" else f"file:{self.folder.absolute()}"
        scheme, rest = self._scheme, self._address.rstrip("/").partition("://")[2]
        if scheme in S3_SCHEMES:
            used = before.partition("://")[0]
            scheme = used if used in S3_SCHEMES else "s3a"
        return f"{scheme}://{rest}"

    @property
    def _scheme(self) -> str:
        return self.url.partition(":/")[0].lower()

    @property
    def _address(self) -> str:
        """The url without its options; a local one has none."""
        return self.url if self.folder is not None else self.url.partition("?")[0]
