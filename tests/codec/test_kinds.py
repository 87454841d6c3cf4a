"""Arrays, generators, tables and frames: they come back the same, or are refused by name."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from contextlib import suppress
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from codec.plain_values import sealed
from holdfast.codec import decode_value, encode_value
from holdfast.errors import DamagedState, NotCheckpointable


def back(value: object) -> object:
    data = encode_value(value)
    again = decode_value(data)
    assert type(again) is type(value)
    assert encode_value(value) == data
    assert encode_value(again) == data
    return again


def same_array(a: np.ndarray, b: object) -> None:
    assert isinstance(b, np.ndarray)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    assert np.array_equal(a, b) if a.dtype.fields and a.dtype.isalignedstruct else a.tobytes() == b.tobytes()
    assert b.flags.writeable
    assert b.flags.owndata


DTYPES = st.one_of(
    hnp.scalar_dtypes(),
    hnp.array_dtypes(),
    hnp.nested_dtypes(),
)


@given(hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0, max_side=4)), st.booleans())
@settings(max_examples=300)
def test_an_array_comes_back_to_the_bit(array: np.ndarray, fortran: bool) -> None:
    array = np.asfortranarray(array) if fortran else array
    again = back(array)
    same_array(array, again)
    assert again.flags.f_contiguous == array.flags.f_contiguous
    assert again.flags.c_contiguous == array.flags.c_contiguous


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5),
        np.empty((0, 3)),
        np.empty((3, 0, 2), order="F"),
        np.arange(24).reshape(2, 3, 4)[:, ::-1, ::2],
        np.arange(6, dtype=">i4").reshape(2, 3).T,
        np.array(["2026-01-01", "NaT"], "M8[ns]"),
        np.array([1, 2], "m8[25s]"),
        np.array([(1, 2.5, "ab", [1, 2])], [("a", "i4"), ("b", "f8"), ("c", "U3"), ("d", "i2", (2,))]),
        np.zeros(2, np.dtype([("a", "u1"), ("b", "f8")], align=True)),
        np.array([b"a\0", b""], "S0"),
        np.array([True, False]),
        np.array([1 + 2j], "c8"),
        np.array([1.5], np.longdouble),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_arrays_of_every_form_come_back(array: np.ndarray) -> None:
    same_array(array, back(array))


def test_the_padding_of_a_struct_does_not_show() -> None:
    inner = np.dtype([("a", "u1"), ("b", "f8")], align=True)
    dtype = np.dtype([("n", "u1"), ("inner", inner, (2,)), ("m", "u1")], align=True)
    noisy = np.frombuffer(b"\xee" * dtype.itemsize * 3, dtype)
    quiet = np.zeros(3, dtype)
    quiet[...] = noisy
    assert noisy.tobytes() != quiet.tobytes()
    assert encode_value(noisy) == encode_value(quiet)
    assert str(back(quiet)) == str(noisy)
    assert encode_value(np.asfortranarray(noisy.reshape(3, 1))) == encode_value(np.asfortranarray(quiet.reshape(3, 1)))


@pytest.mark.parametrize(
    "value",
    [
        np.float64(-0.0),
        np.float32("nan"),
        np.int8(-3),
        np.bool_(True),
        np.str_("a\0"),
        np.str_("\ud800"),
        np.bytes_(b"a\0\0"),
        np.datetime64("2026-01-01", "us"),
        np.timedelta64(3, "D"),
        np.void(b"abc"),
        np.array([(1, 2)], "i4,i4")[0],
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_numpy_scalar_keeps_its_type(value: np.generic) -> None:
    again = back(value)
    assert again.dtype == value.dtype
    assert again.tobytes() == value.tobytes()
    assert repr(again) == repr(value)


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_a_generator_goes_on_where_it_was(kind: str) -> None:
    generator = np.random.Generator(getattr(np.random, kind)(5))
    generator.integers(9, size=3, dtype=np.uint32)
    generator.spawn(2)
    again = back(generator)
    assert again.integers(2**60, size=9).tolist() == generator.integers(2**60, size=9).tolist()
    assert again.spawn(1)[0].random() == generator.spawn(1)[0].random()
    bits = getattr(np.random, kind)(5)
    bits.random_raw(3)
    assert back(bits).random_raw(4).tolist() == bits.random_raw(4).tolist()
    old = np.random.RandomState(getattr(np.random, kind)(5))
    old.normal()
    assert back(old).normal(size=5).tolist() == old.normal(size=5).tolist()


def with_attrs(attribute: object) -> pd.DataFrame:
    frame = pd.DataFrame({"a": [1]})
    frame.attrs["x"] = attribute
    return frame


class Own(np.ndarray):
    pass


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.array([object()]), "dtype object"),
        (np.array([(1, "a")], [("n", "i4"), ("o", "O")]), "dtype"),
        (np.zeros(1, np.dtype({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]})), "dtype"),
        (np.zeros(1, np.dtype((np.record, [("a", "i4")]))), "dtype"),
        (np.ma.array([1]), "MaskedArray"),
        (np.zeros(2).view(Own), "Own"),
        (np.array(["text"], np.dtypes.StringDType()), "dtype StringDType"),
        (pd.Series([1]), "Series"),
        (pd.Timestamp("2026-01-01"), "Timestamp"),
        (pd.DataFrame({"a": [(1, 2)]}), r"objects \(mixed\) in column 'a'"),
        (pd.DataFrame({"a": ["x", b"y"]}), r"objects \(mixed\) in column 'a'"),
        (pd.DataFrame({"a": [1, None]}, dtype=object), r"objects \(integer\) in column 'a'"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Arrow can't hold"),
        (pd.DataFrame([[1, 2]], columns=[1, "a"]), "column labels"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([(1, 2)], tupleize_cols=False)), "objects .* in the index"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([5], name=("x", 1))), "whose index"),
        (pd.DataFrame([[1, 2]], columns=[True, False]), "whose column labels"),
        (pd.DataFrame({"a": pd.to_datetime(["2026-01-01T00:00+02:00"])}), "whose column 'a'"),
        (with_attrs((1, 2)), "whose attrs"),
        (pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)}), "objects in column 'a'"),
        (pl.Series([1]), "Series"),
        (pa.array([1]), "Array"),
    ],
)
@pytest.mark.filterwarnings("ignore:The DataFrame has non-str index name:UserWarning")
def test_what_would_not_come_back_the_same_is_refused(value: object, why: str) -> None:
    with pytest.raises(NotCheckpointable, match=why):
        encode_value(value)


TABLE = pa.table(
    {
        "n": pa.chunked_array([[1, 2], [3]]),
        "s": pa.chunked_array([["a", None], ["c"]]),
        "d": pa.chunked_array([pa.array(["x", "y"]).dictionary_encode(), pa.array(["z"]).dictionary_encode()]),
        "l": pa.array([[1], [], None], pa.list_(pa.int32())),
    }
).replace_schema_metadata({"owner": "orders"})


@pytest.mark.parametrize("table", [TABLE, TABLE.slice(1, 1), TABLE.slice(0, 0), pa.table({})])
def test_an_arrow_table_comes_back(table: pa.Table) -> None:
    again = back(table)
    again.validate(full=True)
    assert again.equals(table, check_metadata=True)


def test_an_arrow_batch_and_a_schema_come_back() -> None:
    batch = TABLE.combine_chunks().to_batches()[0]
    assert back(batch).equals(batch, check_metadata=True)
    assert back(batch.slice(1)).equals(batch.slice(1))
    assert back(TABLE.schema).equals(TABLE.schema, check_metadata=True)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(
            {
                "n": [1, 2, 3],
                "f": [1.5, np.nan, -0.0],
                "s": ["a", None, "c"],
                "c": pd.Categorical(["x", "y", "x"], ordered=True),
                "t": pd.to_datetime(["2026-01-01", None, "2026-01-03"]).tz_localize("Europe/Berlin"),
                "i": pd.array([1, None, 3], "Int64"),
                "o": [date(2026, 1, 1), None, date(2026, 1, 3)],
                "e": [Decimal("1.50"), None, Decimal("2.25")],
            },
            index=pd.Index(["p", "q", "r"], name="key"),
        ),
        pd.DataFrame({"a": [1.0]}, index=pd.MultiIndex.from_tuples([("x", 1)], names=["k", None])),
        pd.DataFrame({0: [1], 1: [2]}),
        pd.DataFrame({"a": range(3)}, index=pd.RangeIndex(10, 16, 2, name="k")),
        with_attrs([1, 2]),
        pd.DataFrame(),
        pd.DataFrame({"a": [1, 2]}).iloc[:0],
        pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")])),
    ],
)
def test_a_pandas_frame_comes_back(frame: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(back(frame), frame)


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame(
            {
                "n": [1, None, 3],
                "s": ["a", None, "c"],
                "c": pl.Series(["x", "y", "x"], dtype=pl.Categorical),
                "e": pl.Series(["x", "y", "x"], dtype=pl.Enum(["x", "y"])),
                "l": [[1], [], None],
                "r": [{"a": 1}, {"a": 2}, None],
                "d": [date(2026, 1, 1), None, date(2026, 1, 3)],
                "m": pl.Series(["1.50", None, "2.25"]).cast(pl.Decimal(10, 2)),
            }
        ),
        pl.DataFrame(),
        pl.DataFrame({"a": []}, schema={"a": pl.Datetime("us", "Europe/Berlin")}),
        pl.concat([pl.DataFrame({"a": [1]}), pl.DataFrame({"a": [2]})], rechunk=False),
    ],
)
def test_a_polars_frame_comes_back(frame: pl.DataFrame) -> None:
    again = back(frame)
    assert again.schema == frame.schema
    assert again.equals(frame)


def test_they_may_stand_anywhere_in_a_value() -> None:
    value = {"rates": [np.arange(3), {"table": TABLE}], "rng": (np.random.default_rng(1),)}
    again = decode_value(encode_value(value))
    assert again["rates"][0].tolist() == [0, 1, 2]
    assert again["rates"][1]["table"].equals(TABLE)
    with pytest.raises(NotCheckpointable, match=r"dtype object \(at value\['a'\]\[1\]\)"):
        encode_value({"a": [1, np.array([object()])]})


@given(
    st.sampled_from(
        [
            np.arange(6, dtype="i4").reshape(2, 3),
            np.zeros(2, [("a", "i4"), ("b", "U3")]),
            np.float64(1.5),
            np.str_("text"),
            np.random.default_rng(3),
            np.random.RandomState(np.random.PCG64(3)),
            np.random.Philox(3),
        ]
    ),
    st.data(),
)
@settings(max_examples=500)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_bytes_changed_behind_the_checksum_decode_or_are_damage(value: object, data: st.DataObject) -> None:
    body = bytearray(encode_value(value)[4:-4])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DamagedState):
        decode_value(sealed(bytes(body)))


def test_an_array_of_objects_is_never_built() -> None:
    body = encode_value(np.arange(1, dtype="<i8"))[4:-4].replace(b"<i8", b"|O8")
    with pytest.raises(DamagedState, match="objects are never stored"):
        decode_value(sealed(body))


def test_a_shape_of_anything_but_numbers_is_damage() -> None:
    # Multiplied, a text and a large number would be a very large text.
    head = encode_value(("<f8", "C", ("abc", 2**60)))[4:-4]
    with pytest.raises(DamagedState, match="no shape"):
        decode_value(sealed(b"x" + struct.pack("<Q", 13) + b"numpy/ndarray" + head + struct.pack("<Q", 0)))


def test_a_seed_that_asks_for_all_the_memory_is_damage() -> None:
    body = encode_value(np.random.default_rng(1))[4:-4]
    pool = b"pool_sizei"
    assert body.count(pool) == 1
    with pytest.raises(DamagedState, match="pool"):
        decode_value(sealed(body.replace(pool + struct.pack("<q", 4), pool + struct.pack("<q", 2**60))))
    with pytest.raises(NotCheckpointable, match="pool"):
        encode_value(np.random.default_rng(np.random.SeedSequence(1, pool_size=2048)))


def test_an_array_larger_than_its_bytes_is_damage() -> None:
    body = encode_value(np.zeros(7))[4:-4]
    with pytest.raises(DamagedState, match="do not fill"):
        decode_value(sealed(body.replace(b"i" + struct.pack("<q", 7), b"i" + struct.pack("<q", 2**40))))


def run_without(library: str, script: str, *, folder: Path, data: bytes) -> str:
    """Run a script in a process in which the library can't be imported."""
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules[{library!r}] = None\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    done = subprocess.run([sys.executable, "-c", script], env=env, input=data, capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("value", "library"),
    [
        (np.arange(3), "numpy"),
        (TABLE, "pyarrow"),
        (pd.DataFrame({"a": [1]}), "pandas"),
        (pd.DataFrame({"a": [1]}), "pyarrow"),
        (pl.DataFrame({"a": [1]}), "polars"),
    ],
    ids=["array", "table", "frame", "frame without Arrow", "polars"],
)
def test_a_missing_library_says_what_to_install(value: object, library: str, tmp_path: Path) -> None:
    script = """
import sys
from holdfast.codec import decode_value
from holdfast.errors import LibraryMissing
try:
    decode_value(sys.stdin.buffer.read())
except LibraryMissing as error:
    print(error.hint)
"""
    assert f"pip install {library}`" in run_without(library, script, folder=tmp_path, data=encode_value(value))


def test_polars_frames_need_no_pyarrow(tmp_path: Path) -> None:
    script = """
import sys
from holdfast.codec import decode_value, encode_value
data = sys.stdin.buffer.read()
print(encode_value(decode_value(data)) == data)
"""
    data = encode_value(pl.DataFrame({"a": [1], "b": ["x"]}))
    assert run_without("pyarrow", script, folder=tmp_path, data=data).strip() == "True"
