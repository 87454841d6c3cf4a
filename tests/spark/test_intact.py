"""Checksums: those of Hadoop, those of Spark, and those inside of files."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ObjectMissing
from holdfast.spark.crc32c import PIECE, Crc32c
from holdfast.spark.cut import Cut, batches_in, cut_at
from holdfast.spark.intact import judge
from holdfast.spark.logs import Malformed
from holdfast.spark.lz4 import blocks, xxhash32
from holdfast.store.local_directory import LocalDirectory
from spark.harms import harm, sidecar, without_sidecars
from spark.samples import KINDS, bring_back, samples


def crc32c(data: bytes) -> int:
    found = Crc32c()
    found.update(data)
    return found.value


def names(root: Path) -> list[str]:
    """The files of the newest batch."""
    directory = LocalDirectory(root)
    look = directory.look()
    cut = cut_at(directory, look, batches_in(look).commits[-1])
    assert isinstance(cut, Cut)
    return sorted(cut.files)


def test_crc32c_gives_the_published_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


@given(st.binary(max_size=64), st.integers(0, 3), st.lists(st.integers(1, 2 * PIECE), max_size=4))
def test_crc32c_does_not_mind_how_its_bytes_come(seed: bytes, pieces: int, cuts: list[int]) -> None:
    data = (seed or b"x") * (pieces * PIECE // max(1, len(seed)) + 1)
    whole, start = Crc32c(), 0
    for length in cuts:
        whole.update(data[start : start + length])
        start += length
    whole.update(data[start:])
    assert whole.value == crc32c(data)
    slow = 0xFFFFFFFF
    if len(data) < 100:
        for byte in data:
            slow ^= byte
            for _ in range(8):
                slow = (slow >> 1) ^ (0x82F63B78 if slow & 1 else 0)
        assert whole.value == slow ^ 0xFFFFFFFF


def test_crc32c_of_a_large_piece_is_that_of_its_bytes_one_by_one() -> None:
    data = bytes(n * n % 251 for n in range(PIECE + 700))
    slow = Crc32c()
    for start in range(0, len(data), 500):
        slow.update(data[start : start + 500])  # too short for lanes
    assert crc32c(data) == slow.value


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [(b"", 0, 0x02CC5D05), (b"a", 0, 0x550D7456), (b"abc", 0, 0x32D153FF), (b"0123456789abcdef" * 3, 0, None)],
)
def test_xxhash32_gives_the_published_values(data: bytes, seed: int, expected: int | None) -> None:
    if expected is not None:
        assert xxhash32(data, seed) == expected
    assert xxhash32(data + b"\0", seed) != xxhash32(data, seed)


def test_every_stream_that_spark_writes_is_read_to_its_end() -> None:
    read = 0
    for sample in samples().values():
        for path in sample.pristine.rglob("*"):
            if path.suffix in (".delta", ".snapshot", ".changelog"):
                assert b"".join(blocks(io.BytesIO(path.read_bytes()).read, verify=True))
                read += 1
    assert read > 50


def test_a_stream_that_ends_early_or_goes_on_too_long_is_found() -> None:
    path = next(samples()["hdfs"].pristine.rglob("*.delta"))
    data = path.read_bytes()
    for wrong in (data[:-1], data[:-21], data + b"x", data[:-30]):
        with pytest.raises(Malformed):
            list(blocks(io.BytesIO(wrong).read, verify=True))


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_spark_leaves_on_a_disk_is_proven_by_a_checksum(kind: str) -> None:
    directory = LocalDirectory(samples()[kind].pristine)
    for name in names(samples()[kind].pristine):
        verdict = judge(directory, name)
        assert (verdict.proof, verdict.fault, verdict.beside) == ("checksum", None, None), name


def test_without_sidecars_state_files_still_have_checksums_and_logs_have_a_form() -> None:
    for kind, expected in {
        "hdfs": {"inner checksum": (".delta", ".snapshot"), "form": ("metadata", "schema")},
        "join": {"inner checksum": (".zip", ".changelog"), "form": (".sst", "schema")},
        "tws": {"checksum": (".zip", ".changelog"), "form": (".sst", ".crc")},
    }.items():
        with bring_back(samples()[kind]) as root:
            without_sidecars(root)
            directory = LocalDirectory(root)
            for name in names(root):
                verdict = judge(directory, name)
                assert verdict.fault is None, name
                for proof, endings in expected.items():
                    if name.endswith(endings):
                        assert verdict.proof == proof, name


def test_a_checksum_of_sparks_that_is_wrong_is_told_from_a_file_that_is() -> None:
    with bring_back(samples()["tws"]) as root:
        directory = LocalDirectory(root)
        name = next(n for n in names(root) if n.endswith(".changelog"))
        beside = root / f"{name}.crc"
        beside.write_text(json.dumps({**json.loads(beside.read_text()), "value": 1}))
        sidecar(beside).unlink()
        found = judge(directory, name)  # Hadoop's sums prove the file
        assert (found.fault, found.beside) == (None, f"{name}.crc")
        sidecar(root / name).unlink()
        assert judge(directory, name).fault == "it does not match the checksum that Spark wrote beside it"


def test_a_sidecar_of_another_version_is_told_from_a_file_that_is_damaged() -> None:
    with bring_back(samples()["tws"]) as root:
        directory = LocalDirectory(root)
        name = next(n for n in names(root) if n.endswith(".zip"))
        folder, _, plain = name.rpartition("/")
        harm(sidecar(root / name), "one bit flipped", at=0.9)
        found = judge(directory, name)  # Spark's own checksum proves the file
        assert (found.fault, found.beside) == (None, f"{folder}/.{plain}.crc")
        right = judge(directory, name, digest=found.sha256)
        assert right.beside == found.beside
        assert judge(directory, name, digest="0" * 64).fault == "its bytes are not those that were captured"


def test_a_sidecar_without_a_head_is_passed_over_as_hadoop_does() -> None:
    with bring_back(samples()["hdfs"]) as root:
        sidecar(root / "metadata").write_bytes(b"")
        verdict = judge(LocalDirectory(root), "metadata")
        assert (verdict.proof, verdict.fault) == ("form", None)


def test_a_file_that_is_gone_is_missing_and_not_damaged(tmp_path: Path) -> None:
    with pytest.raises(ObjectMissing):
        judge(LocalDirectory(tmp_path), "metadata")


def test_offsets_cut_within_their_last_line_are_found_by_their_form() -> None:
    with bring_back(samples()["join"]) as root:
        without_sidecars(root)
        path = root / "offsets" / "5"
        path.write_bytes(path.read_bytes()[:-3])
        assert judge(LocalDirectory(root), "offsets/5").fault == "the offset of source 1 is cut short or not JSON"
