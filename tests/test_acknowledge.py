"""What is gone is said to be gone, once somebody asks for it, and the rest goes on."""

import pytest

from builders import NAME, filled, flip, keys, look, save, start
from holdfast import joining
from holdfast.acknowledge import acknowledge_losses
from holdfast.decide.retention import KeepPolicy
from holdfast.errors import Damage
from holdfast.layout import Slot


@pytest.mark.parametrize("number", [0, 2, 5])
def test_a_manifest_that_is_gone_is_acknowledged_by_a_repair_and_clean_up_goes_on(number: int) -> None:
    repo = filled(6)
    repo.store.delete([f"pipelines/{NAME}/checkpoints/0000000000/{number:010d}.json"])
    with pytest.raises(Damage):
        look(repo).prune(KeepPolicy(last=2))
    report = look(repo).check(mend=True)
    assert any(str(Slot(0, number)) in line for line in report.repaired)
    assert look(repo).check().damaged == []
    look(repo).prune(KeepPolicy(last=2), dry_run=False)
    with start(repo) as run:
        save(run, 9)
    assert look(repo).check(read_percent=100).damaged == []


def test_joined_decisions_that_can_not_be_read_are_set_aside_and_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "JOIN_ABOVE", 1)
    repo = filled(8)
    look(repo).prune(KeepPolicy(last=2), dry_run=False)
    [joined] = [key for key in keys(repo.store) if "joined" in key]
    flip(repo.store, joined)
    with pytest.raises(Damage):
        start(repo)
    look(repo).check(mend=True)
    assert look(repo).records.forgotten() == {Slot(0, n) for n in range(6)}
    with start(repo) as run:
        assert run.recovered.manifest is not None
        assert run.recovered.manifest.at == Slot(0, 7)


def test_where_nothing_is_missing_nothing_is_acknowledged() -> None:
    repo = filled(4)
    before = keys(repo.store)
    assert acknowledge_losses(look(repo).records) == []
    assert keys(repo.store) == before


def test_when_nothing_is_left_on_the_timeline_nothing_is_acknowledged() -> None:
    repo = filled(3)
    repo.store.delete([key for key in keys(repo.store) if "/checkpoints/" in key])
    assert acknowledge_losses(look(repo).records) == []
