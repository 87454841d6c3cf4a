"""Memory while an artifact larger than it should ever hold goes in and comes out, on disk and on a real S3 server.

    python -m benchmarks.memory [--mib N]

Goal: never more than 256 MiB above what the process had before. Each place has a process of its own; the peak is the
kernel's own mark (VmHWM), set back before each step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.pairs import print_table, verdict
from benchmarks.places import s3_server, scratch

from holdfast import Checkpoint
from holdfast import open as open_repository
from holdfast.repository.artifacts import stream_artifact

MIB = 1024 * 1024
GOAL = 256 * MIB


def chunks(size: int) -> Iterator[bytes]:
    """Bytes as a caller would read them from a file: each chunk new and unlike the others."""
    body = bytes(range(256)) * (MIB // 256)
    for number in range(size // MIB):
        yield number.to_bytes(8, "big") + body[8:]


def memory(mark: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at the most since the mark was set back."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{mark}:"))


def measure(act: Callable[[], object], before: int) -> tuple[int, float]:
    """The peak above `before` while it acts, and the seconds it took."""
    Path("/proc/self/clear_refs").write_text("5")
    began = time.perf_counter()
    act()
    return memory("VmHWM") - before, time.perf_counter() - began


def steps(url: str, options: Mapping[str, str], size: int, restored: Path) -> dict[str, tuple[int, float]]:
    repository = open_repository(url, create=True, options=options)
    pipeline = repository.pipeline("orders")
    with pipeline.recover() as run:
        # A first small one, so that what is loaded once counts as before.
        draft = run.begin(0)
        draft.save_stream("count", 0, [b"x" * MIB])
        run.save_manifest(draft)
        before = memory("VmRSS")

        def save() -> None:
            draft = run.begin(1)
            draft.save_stream("count", 0, chunks(size))
            run.save_manifest(draft)

        found = {"save_stream": measure(save, before)}
    checkpoint = pipeline.latest()
    assert checkpoint is not None
    found["stream_artifact"] = measure(lambda: read(checkpoint), before)
    found["verify"] = measure(lambda: prove(checkpoint), before)
    found["restore"] = measure(lambda: checkpoint.restore(restored), before)
    return found


def read(checkpoint: Checkpoint) -> None:
    records = checkpoint.pipeline.records
    [artifact] = checkpoint.operators["count"][0]
    deque(stream_artifact(records.store, records.keys, artifact), maxlen=0)


def prove(checkpoint: Checkpoint) -> None:
    if checkpoint.verify().damaged:
        raise RuntimeError("what was read is not what was saved")


def in_a_process_of_its_own(url: str, options: Mapping[str, str], size: int, restored: Path) -> dict[str, list[float]]:
    order = json.dumps([url, dict(options), size, str(restored)])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", "--child"],
        input=order,
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def main() -> None:
    options = argparse.ArgumentParser(description="memory while a large artifact goes in and comes out")
    options.add_argument("--mib", type=int, default=4096, help="size of the artifact")
    options.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.child:
        url, store_options, size, restored = json.load(sys.stdin)
        print(json.dumps(steps(url, store_options, size, Path(restored))))
        return

    size = chosen.mib * MIB
    places = {}
    with scratch() as folder:
        places["file://"] = in_a_process_of_its_own(str(folder / "repository"), {}, size, folder / "restored")
    with scratch() as folder, s3_server() as server:
        url = server.url("memory")
        places["s3://"] = in_a_process_of_its_own(url, server.options, size, folder / "restored")
    print_table(
        f"an artifact of {chosen.mib} MiB, once each; the peak above what the process had before",
        ("", "", "peak", "goal", "", "took", "rate"),
        [
            (
                place,
                step,
                f"{peak / MIB:.0f} MiB",
                f"under {GOAL // MIB} MiB",
                verdict(peak < GOAL),
                f"{seconds:.1f} s",
                f"{chosen.mib / seconds:.0f} MiB/s",
            )
            for place, found in places.items()
            for step, (peak, seconds) in found.items()
        ],
    )


if __name__ == "__main__":
    main()
