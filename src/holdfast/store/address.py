"""What an address says: a path, a name in memory, or a place in a cloud with its options. Opens nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote, urlencode

from holdfast.errors import BadName, BadURL
from holdfast.store.keys import check_key

__all__ = ["Cloud", "CloudAddress", "LocalAddress", "MemoryAddress", "read_address", "redact"]

Cloud: TypeAlias = Literal["s3", "gs", "az"]

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
USER = re.compile(r"(?<=//)[^/?@]*@")

CLOUDS: dict[str, Cloud] = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "wasb": "az",
    "wasbs": "az",
}
AZURE_HOSTS = {"abfs": "dfs.", "abfss": "dfs.", "wasb": "blob.", "wasbs": "blob."}
"""What follows the account in the host, for the schemes whose place is CONTAINER@ACCOUNT.HOST."""
ELSEWHERE = {
    "hdfs": "there is no way to HDFS without Java: give an object store, or the path of a mount",
    "viewfs": "there is no way to HDFS without Java: give an object store, or the path of a mount",
    "http": "give the server as an endpoint: s3://BUCKET/PREFIX?endpoint=…",
    "https": "give the server as an endpoint: s3://BUCKET/PREFIX?endpoint=…",
}
DATABRICKS = Path("/dbfs")
VOLUMES = Path("/Volumes")
SHOWN = ("account_name", "endpoint", "region")
"""Options that an address may show; all others are held to be secrets."""


class LocalAddress(NamedTuple):
    path: Path


class MemoryAddress(NamedTuple):
    name: str


class CloudAddress(NamedTuple):
    cloud: Cloud
    bucket: str
    prefix: str
    options: Mapping[str, str]
    url: str
    """The address as it may be shown."""


def read_address(
    url: str, options: Mapping[str, str], *, as_hadoop: bool = False
) -> LocalAddress | MemoryAddress | CloudAddress:
    """Take an address apart; BadURL says what is wrong with it. `options` win over those in it.

    As Hadoop reads it, a local address is taken to the letter (`%20` and `?` are part of a name), and doubled slashes
    count once.
    """
    scheme = found[1].lower() if (found := SCHEME.match(url)) else ""
    if scheme in CLOUDS:
        return _cloud(url, scheme, options, as_hadoop)
    if scheme in ELSEWHERE:
        raise BadURL(redact(url), ELSEWHERE[scheme])
    if options or (scheme and "?" in url and not as_hadoop):
        raise BadURL(redact(url), "only a cloud store takes options")
    if scheme == "memory":
        return MemoryAddress(url.partition("://")[2].strip("/"))
    if scheme == "file":
        path = _path_of(url)
        return LocalAddress(Path(path if as_hadoop else unquote(path)))
    if scheme == "dbfs":
        return LocalAddress(_mounted(url))
    if scheme or not url:
        raise BadURL(redact(url), f"the scheme {scheme!r} is not known" if scheme else "the address is empty")
    return LocalAddress(Path(url).expanduser())


def redact(url: str) -> str:
    """The address as it may be shown: without a user, and without the options that may be secret."""
    address, _, query = url.partition("?")
    shown = [(name, USER.sub("", value)) for name, value in parse_qsl(query) if name in SHOWN]
    # The container of an Azure address stands where others have their user.
    if address.partition("://")[0].lower() not in AZURE_HOSTS:
        address = USER.sub("***@", address)
    return f"{address}?{urlencode(shown, safe='/:')}" if shown else address


def _path_of(url: str) -> str:
    """The path in SCHEME:/PATH or SCHEME:///PATH."""
    rest = url.partition(":")[2]
    if not rest.startswith("//"):
        return rest
    host, _, path = rest[2:].partition("/")
    if host not in ("", "localhost"):
        raise BadURL(redact(url), "a local address is file:///PATH, without a host")
    return f"/{path}"


def _mounted(url: str) -> Path:
    """Where Databricks mounts what it calls dbfs:/PATH."""
    path = _path_of(url).lstrip("/")
    volume = path.partition("/")[0] == VOLUMES.name
    mount = VOLUMES if volume else DATABRICKS
    if not mount.is_dir():
        raise BadURL(redact(url), f"{mount} is not here: run this on Databricks, or give the object store behind it")
    return mount / path.removeprefix(f"{VOLUMES.name}/") if volume else mount / path


def _cloud(url: str, scheme: str, given: Mapping[str, str], as_hadoop: bool) -> CloudAddress:
    address, _, query = url.partition("?")
    place, _, prefix = address.partition("://")[2].partition("/")
    in_address = dict(parse_qsl(query, keep_blank_values=True))
    if scheme in AZURE_HOSTS:
        place, in_host = _azure_host(url, scheme, place)
        in_address = in_host | in_address
    if "@" in place:
        raise BadURL(redact(url), "a user or key does not belong here: use the environment or options")
    if not place:
        raise BadURL(redact(url), "the name of the bucket or container is missing")
    prefix = prefix.strip("/")
    if as_hadoop:
        prefix = re.sub("/+", "/", prefix)
    if prefix:
        try:
            check_key(prefix)
        except BadName:
            raise BadURL(redact(url), f"{prefix!r} is no folder: empty, '.' and '..' segments are not taken") from None

    options = {**in_address, **given}
    shown = urlencode([(name, options[name]) for name in SHOWN if name in options])
    return CloudAddress(CLOUDS[scheme], place, prefix, options, redact(f"{address.rstrip('/')}?{shown}"))


def _azure_host(url: str, scheme: str, place: str) -> tuple[str, dict[str, str]]:
    """CONTAINER@ACCOUNT.HOST taken apart: the container, and the options that the host stands for."""
    kind = AZURE_HOSTS[scheme]
    container, _, host = place.partition("@")
    account, _, domain = host.partition(".")
    if not (container and account and domain.startswith(kind)):
        raise BadURL(redact(url), f"the form is {scheme}://CONTAINER@ACCOUNT.{kind}core.windows.net/PREFIX")
    domain = domain.removeprefix(kind)
    if domain == "core.windows.net":
        return container, {"account_name": account}
    return container, {"account_name": account, "endpoint": f"https://{account}.blob.{domain}"}
