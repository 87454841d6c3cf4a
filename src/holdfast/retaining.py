"""The bounded past of one stream: when to prune, and what became of it. A prune never fails a durable checkpoint."""

from __future__ import annotations

from holdfast.decide.retention import KeepPolicy
from holdfast.gc import plan_prune, sweep
from holdfast.repository.pipeline import PipelineRecords

__all__ = ["Retaining"]


class Retaining:
    """Prunes one stream. Made anew with each recovery, and used by one thread at a time."""

    def __init__(self, records: PipelineRecords, keep: KeepPolicy) -> None:
        self.prunes = 0
        self.failures = 0
        self.error: str | None = None
        self._records = records
        self._keep = keep
        self._standing = len(records.world().counted())
        self._bound = _with_slack(keep.last)
        self._swept = False

    def after_checkpoint(self) -> None:
        """Count one more, and prune before a quarter too many stand: doing it each time would cost more than saving.

        Once in each run the bytes that earlier runs left behind when they were killed go too. A failure is counted,
        shown, and tried again after the next checkpoint.
        """
        self._standing += 1
        if self._keep.empty or self._standing <= self._bound:
            return
        try:
            plan = plan_prune(self._records, self._keep)
            plan.apply()
            if not self._swept:
                sweep(self._records)
        except Exception as error:  # noqa: BLE001 - the checkpoint is durable, whatever goes wrong here
            self.failures += 1
            self.error = f"{type(error).__name__}: {error}"
            return
        self._swept = True
        self.prunes += 1
        self.error = None
        self._standing = sum(1 for verdict in plan.verdicts if verdict.keep)
        self._bound = _with_slack(max(self._standing, self._keep.last))


def _with_slack(kept: int) -> int:
    return kept + kept // 4 + 2
