"""From an address to what lies there: a store of Holdfast's own, or a directory of somebody else's files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.errors import BadURL
from holdfast.store.address import CloudAddress, MemoryAddress, read_address, redact
from holdfast.store.contract import Store
from holdfast.store.directory import Directory
from holdfast.store.file import FileStore
from holdfast.store.local_directory import LocalDirectory
from holdfast.store.memory import MemoryStore
from holdfast.store.retry import RetryingStore, RetryPolicy

__all__ = ["Address", "open_directory", "open_store"]


@dataclass(frozen=True)
class Address:
    """Where something lies and the options that open it: what another process needs to get there too.

    Options may be secrets and are not shown; they go wherever the address goes.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_everywhere(self) -> bool:
        """Whether it leads to the same place from every machine, for all that its name says."""
        return isinstance(read_address(self.url, self.options, as_hadoop=True), CloudAddress)

    @property
    def is_here_only(self) -> bool:
        """Whether it leads nowhere from another process."""
        return isinstance(read_address(self.url, self.options, as_hadoop=True), MemoryAddress)

    def store(self) -> Store:
        return open_store(self.url, self.options)

    def directory(self) -> Directory:
        return open_directory(self.url, self.options)


def open_store(url: str, options: Mapping[str, str] | None = None, retry: RetryPolicy | None = None) -> Store:
    """The store at an address: a path, or file://, memory://, s3://, gs://, az://, abfss:// or wasbs://.

    Nothing is sent or made yet. `options` win over those in the address (`?endpoint=…&region=…`), and those over the
    environment (AWS_*, GOOGLE_*, AZURE_STORAGE_*). Secrets are best left to the environment.
    """
    address = read_address(url, options or {})
    if isinstance(address, CloudAddress):
        # obstore is slow to import, and most uses of Holdfast do not need it.
        from holdfast.store.clients import connect_store

        policy = retry or RetryPolicy()
        return RetryingStore(connect_store(address, retry_seconds=policy.budget_seconds), policy)
    if isinstance(address, MemoryAddress):
        return MemoryStore(address.name)
    return FileStore(address.path)


def open_directory(url: str, options: Mapping[str, str] | None = None, retry: RetryPolicy | None = None) -> Directory:
    """The directory at an address as Spark takes it: a path, file:/, s3a://, gs://, abfss://, wasbs:// or dbfs:/.

    Nothing is sent yet. Options are those of `open_store`. As in Spark, nothing in the address is unescaped.
    """
    address = read_address(url, options or {}, as_hadoop=True)
    if isinstance(address, CloudAddress):
        from holdfast.store.clients import connect_directory

        return connect_directory(address, retry or RetryPolicy())
    if isinstance(address, MemoryAddress):
        raise BadURL(redact(url), "what is in memory is Holdfast's own: no other program writes there")
    return LocalDirectory(address.path)
