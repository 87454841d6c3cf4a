"""A process that edits or rescales a checkpoint and is killed: by itself at a step that has a name, or from outside."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast.spark import lay
from holdfast.state import edit, editing, folders, rescale, rescaling
from spark.session import start_session

STEPS = {
    "laid": (lay._Laying, "_fill"),
    "rows written": (editing._Editing, "_edited"),
    "made again": (editing, "rebuild"),
    "repartitioned": (rescaling, "cut_of"),
    "put there": (editing._Editing, "_graft"),
    "made small": (folders, "_point"),
    "compared": (editing._Editing, "_compared"),
    "all compared": (rescaling, "_compare"),
    "before it is moved": (lay._Laying, "_owner"),
}
"""After which function of the real code the process dies."""


def die_after(owner: Any, name: str) -> None:
    function: Callable[..., Any] = getattr(owner, name)

    def killed(*given: Any, **named: Any) -> Any:
        function(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, killed)


def main() -> None:
    repository, reference, destination, verb, step = json.loads(sys.argv[1])
    checkpoint = holdfast.open(repository).find(reference)
    spark = start_session()
    if step:
        die_after(*STEPS[step])
    print("begun", flush=True)
    if verb == "edit":
        edit(checkpoint, lambda rows: rows, destination, spark=spark)
    else:
        rescale(checkpoint, destination, 2, spark=spark)
    print("done")


if __name__ == "__main__":
    main()
