"""How long a soak runs, and which run it repeats: HOLDFAST_SOAK_ROUNDS and HOLDFAST_SOAK_SEED."""

from __future__ import annotations

import os
import random

__all__ = ["soak_chance", "soak_rounds"]


def soak_rounds(otherwise: int) -> int:
    """How many rounds were asked for."""
    return int(os.environ.get("HOLDFAST_SOAK_ROUNDS", otherwise))


def soak_chance() -> random.Random:
    """What the soak draws from; its seed is printed."""
    seed = int(os.environ.get("HOLDFAST_SOAK_SEED", random.randrange(10**6)))
    print(f"\nHOLDFAST_SOAK_SEED={seed}")
    return random.Random(seed)
