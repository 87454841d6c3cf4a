"""A process that restores a checkpoint until it is killed: by itself at its n-th step on the disk, or from outside."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import holdfast
from holdfast.spark import lay
from holdfast.spark.places import SparkPlace

STEPS = frozenset({"open", "os.mkdir", "os.rename", "os.rmdir", "os.remove", "os.truncate", "fcntl.flock"})


def die_at(step: int) -> None:
    left = [step]

    def count(event: str, _arguments: Any) -> None:
        if event in STEPS:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def main() -> None:
    repository, destination, options, sink, step = json.loads(sys.argv[1])
    checkpoint = holdfast.open(repository).find("p")
    given: dict[str, Any] = {"options": options}
    if sink:
        given |= {"file_sink": sink, "sink_options": options, "apply_sink": True}
    # What comes before the first write takes far longer than all of them.
    lay._installed()
    SparkPlace(destination, options).directory().look()
    print("begun", flush=True)
    if step:
        die_at(step)
    checkpoint.restore(destination, **given)
    os.write(1, b"done\n")


if __name__ == "__main__":
    main()
