"""The state record against the least that it could cost: one memcpy and one SHA-256 of the same bytes.

    python -m benchmarks.codec [--rounds N] [--states N] [--bytes N]

A speed of 1.00 is memcpy plus SHA-256 alone; the goal is 0.70 or more, for both ways.
"""

from __future__ import annotations

import argparse
import hashlib
import os

from benchmarks.pairs import alternate, print_table

from holdfast.codec import CheckpointState, decode_state, encode_state


def main() -> None:
    options = argparse.ArgumentParser(description="state record against memcpy + SHA-256")
    options.add_argument("--rounds", type=int, default=21)
    options.add_argument("--states", type=int, default=64)
    options.add_argument("--bytes", type=int, default=1024 * 1024)
    chosen = options.parse_args()

    states = {f"operator-{n:04}": os.urandom(chosen.bytes) for n in range(chosen.states)}
    state = CheckpointState("orders", 1_000_000, 1_700_000_000_000_000_000, operator_states=states)
    record = encode_state(state)
    assert decode_state(record) == state

    def fresh() -> bytes:
        """Into new memory, as the record itself must go."""
        copy = bytes(memoryview(record))
        hashlib.sha256(copy).digest()
        return copy

    target = memoryview(bytearray(len(record)))

    def warm() -> None:
        """Into memory that is already there: what no function that returns its result could reach."""
        target[:] = record
        hashlib.sha256(target).digest()

    rows = []
    for name, run in (("encode", lambda: encode_state(state)), ("decode", lambda: decode_state(record))):
        for against, floor in (("memcpy to new memory + SHA-256", fresh), ("memcpy to warm memory + SHA-256", warm)):
            found = alternate(run, floor, chosen.rounds)
            rows.append((name, against, found.wall.inverse, found.cpu.inverse))
    print_table(
        f"{chosen.states} states of {chosen.bytes} bytes, {chosen.rounds} pairs; speed, median (quartiles)",
        ("", "against", "wall", "CPU"),
        rows,
    )


if __name__ == "__main__":
    main()
