"""What was set off from the dashboard and takes its time: checks, prunes, savepoints that are waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.errors import HoldfastError
from holdfast.ids import new_token, now_ms

__all__ = ["Job", "Jobs", "Kind", "Say"]

Kind = Literal["savepoint", "check", "prune"]
Say = Callable[[str], None]
"""A job says by this what it is doing."""

MOST = 64


@dataclass
class Job:
    """One thing under way or done. `result` is plain JSON once it is done, `error` what went wrong."""

    id: str
    kind: Kind
    pipeline: str
    started_ms: int
    state: Literal["running", "done", "failed"] = "running"
    said: str = ""
    ended_ms: int | None = None
    result: Any = None
    error: HoldfastError | None = None


class Jobs:
    """Runs jobs, one of a kind at a time for each pipeline, and remembers the last ones.

    The threads end with the process: whatever a job does can be killed at any instant and done again.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, kind: Kind, pipeline: str, act: Callable[[Say], Any]) -> Job:
        """Start a job, or give the one of this kind that is under way for the pipeline."""
        with self._lock:
            for job in self._jobs.values():
                if (job.kind, job.pipeline, job.state) == (kind, pipeline, "running"):
                    return job
            job = Job(new_token(), kind, pipeline, now_ms())
            self._jobs[job.id] = job
            for old in [each.id for each in self._jobs.values() if each.state != "running"][: len(self._jobs) - MOST]:
                del self._jobs[old]
        threading.Thread(target=self._run, args=(job, act), name=f"holdfast-{kind}", daemon=True).start()
        return job

    def get(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def of(self, pipeline: str) -> list[Job]:
        """The jobs of a pipeline, newest first."""
        with self._lock:
            found = [job for job in self._jobs.values() if job.pipeline == pipeline]
        return found[::-1]

    def _run(self, job: Job, act: Callable[[Say], Any]) -> None:
        def say(what: str) -> None:
            job.said = what

        try:
            job.result = act(say)
            job.state = "done"
        except HoldfastError as error:
            job.error, job.state = error, "failed"
        except Exception as error:  # noqa: BLE001 - shown to whoever waits for it; there is nobody above to tell
            job.said, job.state = f"unexpected {type(error).__name__}: {error}", "failed"
        finally:
            job.ended_ms = now_ms()
