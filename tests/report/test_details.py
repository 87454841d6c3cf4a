"""What is told of one checkpoint."""

from __future__ import annotations

from builders import look, make_repo, save, start
from holdfast.report import describe


def test_a_finding_weighs_the_same_whether_one_checkpoint_is_shown_or_all_are_checked() -> None:
    repository = make_repo()
    with start(repository) as run:
        save(run, 0)
    [shown] = describe(look(repository).checkpoints()[-1]).findings
    [fault] = look(repository).check().faults
    assert (shown.severity, shown.where) == ("note", "pipeline_hash")
    assert (fault.severity, fault.what.partition(":")[0]) == ("note", "pipeline_hash")
