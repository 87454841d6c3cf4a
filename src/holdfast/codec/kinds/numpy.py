"""Arrays, scalars and random generators of NumPy."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.lib.format import descr_to_dtype, dtype_to_descr

from holdfast.codec.reduced import Reduced, Unsupported

__all__ = ["rebuild", "reduce"]

BIT_GENERATORS = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}

# NumPy's own is 4 words. Without a bound a damaged number could ask for all the memory there is.
LARGEST_POOL = 1024


def reduce(value: Any) -> Reduced | None:
    kind = type(value)
    if kind is np.ndarray:
        return _reduce_array("numpy/ndarray", value)
    if kind is np.str_ or kind is np.bytes_:
        # As an array, and by NumPy's own str(), they would lose the NULs at their end.
        return Reduced("numpy/text", str.__str__(value) if kind is np.str_ else bytes(value))
    if isinstance(value, np.generic):
        return _reduce_array("numpy/scalar", np.asarray(value))
    if kind is np.random.Generator:
        return Reduced("numpy/Generator", _bits(value.bit_generator))
    if kind is np.random.RandomState:
        return Reduced("numpy/RandomState", value.get_state(legacy=False))
    if BIT_GENERATORS.get(kind.__name__) is kind:
        return Reduced("numpy/BitGenerator", _bits(value))
    return None


def rebuild(name: str, head: Any, data: memoryview) -> object:
    match name:
        case "ndarray":
            return _array(head, data)
        case "scalar":
            return _array(head, data)[()]
        case "text":
            return np.bytes_(head) if type(head) is bytes else np.str_(head)
        case "BitGenerator":
            return _bit_generator(*head)
        case "Generator":
            return np.random.Generator(_bit_generator(*head))
        case "RandomState":
            generator = np.random.RandomState(BIT_GENERATORS[head["bit_generator"]](0))
            generator.set_state(head)
            return generator
        case _:
            raise LookupError("no such kind")


def _reduce_array(kind: str, array: Any) -> Reduced:
    description = _description(array.dtype)
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    if array.dtype.fields:
        # Between the fields may lie padding with anything in it, and assigning copies only the fields.
        clean = np.zeros(array.shape, array.dtype, order="F" if fortran else "C")
        clean[...] = array
        array = clean
    flat = (array.T if fortran else np.ascontiguousarray(array)).reshape(-1)
    data = flat.view(np.uint8).data if flat.nbytes else b""
    return Reduced(kind, (description, "F" if fortran else "C", array.shape), data)


def _description(dtype: Any) -> object:
    """The plain form of a dtype that gives the very same one again; most dtypes of other packages have none."""
    if not dtype.hasobject:
        try:
            description = dtype_to_descr(dtype)
            again = descr_to_dtype(description)
        except (TypeError, ValueError):
            again = None
        if again is not None and again == dtype and again.type is dtype.type:
            return description
    raise Unsupported(f"numpy array of dtype {dtype}")


def _array(head: Any, data: memoryview) -> Any:
    description, order, shape = head
    dtype = descr_to_dtype(description)
    if dtype.hasobject:
        raise TypeError("objects are never stored")
    if not all(type(n) is int and n >= 0 for n in shape):
        raise TypeError(f"{shape!r} is no shape")
    if prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{len(data)} bytes do not fill the shape {shape} of {dtype}")
    return np.ndarray(shape, dtype, data if len(data) else None, order=order).copy(order)


def _bits(generator: Any) -> tuple[str, object, object]:
    # The seed sequence is kept beside the state: what spawn() gives next depends on it alone.
    kind, seed = type(generator), getattr(generator, "seed_seq", None)
    if BIT_GENERATORS.get(kind.__name__) is not kind:
        raise Unsupported(f"numpy generator on a {kind.__qualname__}")
    if type(seed) is not np.random.SeedSequence:
        return kind.__name__, generator.state, None
    if seed.pool_size > LARGEST_POOL:
        raise Unsupported(f"numpy seed sequence with a pool of {seed.pool_size} words")
    return kind.__name__, generator.state, seed.state


def _bit_generator(name: str, state: Any, seed: Any) -> Any:
    if seed is not None and seed["pool_size"] > LARGEST_POOL:
        raise ValueError(f"a pool of {seed['pool_size']} words")
    generator = BIT_GENERATORS[name](0 if seed is None else np.random.SeedSequence(**seed))
    generator.state = state
    return generator
