"""Links of the chain made from Spark's own record of an epoch."""

from __future__ import annotations

import hashlib
import json

import msgspec

from holdfast.epochs import Link
from holdfast.manifest import Manifest
from holdfast.spark.logs import parse_offsets

__all__ = ["LINK", "encode_link", "link_of_manifest", "link_of_offsets"]

LINK = "link"
"""Where the metadata of a manifest has the link that its checkpoint stands at."""
LONGEST = 1024
"""A longer text of offsets is stood for by its digest: every sink keeps it with each epoch."""


def link_of_offsets(epoch: int, data: bytes) -> Link:
    """The link after an epoch, from the bytes of `offsets/<epoch>`: where every source stands, and nothing else."""
    sources = {name: _plain(offset) for name, offset in parse_offsets(data).sources.items()}
    text = json.dumps(sources, sort_keys=True, separators=(",", ":"))
    if len(text) > LONGEST:
        text = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return Link(epoch, text)


def _plain(offset: str | None) -> object:
    try:
        return json.loads(offset) if offset is not None else None
    except ValueError:
        return offset


def encode_link(link: Link) -> str:
    return msgspec.json.encode(link).decode()


def link_of_manifest(manifest: Manifest) -> Link | None:
    """The link of a checkpoint of a pipeline; None for one that a plain capture made."""
    text = manifest.metadata.get(LINK)
    return msgspec.json.decode(text, type=Link) if text else None
