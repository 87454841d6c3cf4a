"""The size of a manifest for each file that it refers to, and what it costs to encode and decode.

    python -m benchmarks.manifest [--rounds N] [--partitions N …]

Goal: under 100 bytes for each file. For scale, the times stand beside SHA-256 and zlib of the same JSON, which no
manifest can do without.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import zlib

import msgspec
from benchmarks.pairs import Comparison, alternate, milliseconds, print_table, verdict

from holdfast import Manifest, PartitionState
from holdfast import open as open_repository
from holdfast.manifest import COMPRESSION, decode_manifest, encode_manifest

GOAL = 100
OPERATORS = 4


def manifest_of(partitions: int) -> Manifest:
    """A checkpoint of several operators whose partitions are in packs, a third of them with a delta on top."""
    draw = random.Random(1)
    with open_repository("memory://", create=True).pipeline("orders").recover() as run:
        draft = run.begin(0)
        for n in range(partitions):
            operator, partition = f"operator-{n % OPERATORS}", n // OPERATORS
            draft.save_partition(PartitionState(operator, partition, draw.randbytes(draw.randint(2100, 4000))))
            if n % 3 == 0:
                delta = draw.randbytes(draw.randint(2100, 2500))
                draft.save_partition(PartitionState(operator, partition, delta, is_delta=True))
        return run.save_manifest(draft)


def measure(partitions: int, rounds: int) -> list[tuple[object, ...]]:
    manifest = manifest_of(partitions)
    data = encode_manifest(manifest)
    assert decode_manifest("", data) == manifest
    files = sum(1 for _ in manifest.artifacts())
    plain = msgspec.json.encode(manifest)
    packed = zlib.compress(plain, COMPRESSION)

    def least_encode() -> None:
        hashlib.sha256(plain).digest()
        zlib.compress(plain, COMPRESSION)

    def least_decode() -> None:
        hashlib.sha256(zlib.decompress(packed)).digest()

    each = len(data) / files
    return [
        (partitions, files, "bytes for each file", f"{each:.1f}", "", "", f"under {GOAL}", verdict(each < GOAL)),
        (partitions, files, "encode", *cells(alternate(lambda: encode_manifest(manifest), least_encode, rounds))),
        (partitions, files, "decode", *cells(alternate(lambda: decode_manifest("", data), least_decode, rounds))),
    ]


def cells(found: Comparison) -> tuple[object, ...]:
    return milliseconds(found.first), found.wall, found.cpu, "", ""


def main() -> None:
    options = argparse.ArgumentParser(description="bytes and time of a manifest")
    options.add_argument("--rounds", type=int, default=21)
    options.add_argument("--partitions", type=int, nargs="+", default=[2000, 20000])
    chosen = options.parse_args()

    print_table(
        f"manifest, {chosen.rounds} pairs; time over time of SHA-256 and zlib alone, median (quartiles)",
        ("partitions", "files", "", "each or all", "wall", "CPU", "goal", ""),
        [row for partitions in chosen.partitions for row in measure(partitions, chosen.rounds)],
    )


if __name__ == "__main__":
    main()
