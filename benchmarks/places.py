"""Where the benchmarks keep their bytes: a folder that is gone afterwards (TMPDIR says where), and a real S3 server."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.servers import S3Server, seaweedfs

from holdfast.store import open_store

__all__ = ["S3Server", "s3_server", "scratch"]


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        yield Path(folder)


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    with scratch() as folder, seaweedfs(folder / "s3") as server:
        # The server makes a bucket with the first object in it; a repository is refused where there is none.
        open_store(server.url(), server.options).put("made", b"")
        yield server
