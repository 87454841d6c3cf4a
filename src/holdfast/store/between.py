"""Two places: whether one lies in the other, and files that are copied from one to the other."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from holdfast.store.address import CloudAddress, LocalAddress, MemoryAddress, read_address
from holdfast.store.open import Address, open_store

__all__ = ["copy_files", "key_within", "place_of", "plain_url", "tidy"]

AT_ONCE = 8
WHERE = ("account_name", "base_url", "endpoint", "endpoint_url")
"""Options that say which server is meant; a bucket of the same name in another is another place."""


def key_within(root: Address, place: Address) -> str | None:
    """What leads from a root to a place below it, "" if it is the root itself; None if it lies elsewhere."""
    outer, inner = _read(root), _read(place)
    if isinstance(outer, CloudAddress) and isinstance(inner, CloudAddress) and _server(outer) == _server(inner):
        return _rest(outer.prefix, inner.prefix)
    if isinstance(outer, LocalAddress) and isinstance(inner, LocalAddress):
        paths = (os.path.realpath(address.path).strip("/") for address in (outer, inner))
        return _rest(*paths)
    if isinstance(outer, MemoryAddress) and outer == inner and outer.name:
        return ""
    return None


def place_of(address: Address) -> tuple[object, ...]:
    """What is equal for two addresses of one place, however they are written."""
    read = _read(address)
    if isinstance(read, LocalAddress):
        return (os.path.realpath(read.path),)
    # What lies in memory without a name is a place of its own each time.
    return (*_server(read), read.prefix) if isinstance(read, CloudAddress) else (read.name or id(address),)


def copy_files(source: Address, target: Address, names: Mapping[str, str]) -> None:
    """Copy files by their keys: {in the source: in the target}. Inside one cloud their bytes do not come by here.

    The target's keys must be new, and no other writer's.
    """
    outer, inner = _read(source), _read(target)
    if isinstance(outer, CloudAddress) and isinstance(inner, CloudAddress) and _opens_both(outer, inner):
        bucket = open_store(f"{inner.cloud}://{inner.bucket}", inner.options)
        _each(bucket.copy, {_join(outer.prefix, name): _join(inner.prefix, key) for name, key in names.items()})
        return
    origin, place = source.store(), target.store()
    _each(lambda name, key: place.write(key, origin.read(name)), names)


def tidy(url: str, options: Mapping[str, str] | None = None) -> Address:
    """An address whose url can be shown: what it says of options stands among them. A path is from the root."""
    address = read_address(url, options or {})
    if isinstance(address, CloudAddress):
        return Address(f"{address.cloud}://{_join(address.bucket, address.prefix)}", dict(address.options))
    if isinstance(address, LocalAddress):
        return Address(os.path.abspath(address.path))  # noqa: PTH100 - links are left as they are
    return Address(url)


def plain_url(root: Address, key: str) -> str:
    """Where a file lies, as other programs name it: a path, or BUCKET/KEY behind the scheme, without options."""
    address = _read(root)
    if isinstance(address, LocalAddress):
        return os.path.abspath(address.path / key)  # noqa: PTH100 - links are left as they are
    if isinstance(address, CloudAddress):
        return f"{address.cloud}://{_join(address.bucket, _join(address.prefix, key))}"
    return _join(root.url, key)


def _read(address: Address) -> CloudAddress | LocalAddress | MemoryAddress:
    return read_address(address.url, address.options)


def _server(address: CloudAddress) -> tuple[object, ...]:
    return address.cloud, address.bucket, *(address.options.get(name) for name in WHERE)


def _opens_both(one: CloudAddress, other: CloudAddress) -> bool:
    return _server(one) == _server(other) and one.options == other.options


def _rest(outer: str, inner: str) -> str | None:
    if not outer or inner == outer:
        return inner[len(outer) :]
    return inner[len(outer) + 1 :] if inner.startswith(f"{outer}/") else None


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if folder and name else folder or name


def _each(move: Callable[[str, str], object], names: Mapping[str, str]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(move, names.keys(), names.values()))
