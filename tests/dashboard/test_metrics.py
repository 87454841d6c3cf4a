from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from builders import PACKED, flip, make_repo, save
from dashboard.conftest import Client, Serving
from dashboard.sample import Writer
from holdfast.dashboard import fleet as fleet_module
from holdfast.handles import Repository
from holdfast.layout import Slot
from holdfast.records import VoidSlot
from holdfast.store import open_store


def figures(client: Client) -> dict[str, dict[str, float]]:
    """By name, then by pipeline (and status)."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, {})["/".join(sample.labels.values())] = sample.value
    return found


def test_ages_and_sizes_are_told_of_every_pipeline_from_the_repository_alone(fleet: Client) -> None:
    found = figures(fleet)
    assert 21 <= found["holdfast_last_checkpoint_age_seconds"]["orders"] < 1_000
    assert found["holdfast_last_commit_age_seconds"]["payments"] > 3 * 3600
    assert found["holdfast_checkpoint_epoch"]["orders"] == 73
    assert found["holdfast_generation"]["orders"] == 3
    assert found["holdfast_fenced_total"]["orders"] == 0
    assert found["holdfast_checkpoint_interval_seconds"]["clicks"] == 60
    assert found["holdfast_pipelines"][""] == 7
    assert found["holdfast_pipelines_unread"][""] == 0


def test_a_damaged_newest_checkpoint_leaves_the_age_of_the_last_that_can_be_read_and_no_counter(fleet: Client) -> None:
    found = figures(fleet)
    assert found["holdfast_last_checkpoint_age_seconds"]["inventory"] >= 90
    assert found["holdfast_checkpoint_epoch"]["inventory"] == 12
    assert found["holdfast_checkpoint_bytes"]["inventory"] > 0
    assert found["holdfast_processed_records_total"]["orders"] == 73 * 900
    assert "inventory" not in found["holdfast_processed_records_total"]


@pytest.mark.parametrize("lost", ["the identity", "every checkpoint"])
def test_figures_that_are_not_known_are_left_out(serving: Serving, lost: str) -> None:
    repository = make_repo(open_store("memory://"))
    it = Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=1)
    it.claim(0)
    it.hint(it.run(0, range(3), 1_000, 1_000))
    for key in [it.keys.identity] if lost == "the identity" else [it.keys.manifest(Slot(0, n)) for n in range(3)]:
        flip(repository.store, key, 40)
    with serving(repository) as client:
        client.wait_for_the_sweep()
        found = figures(client)
    assert found["holdfast_health"] == {"orders/damaged": 1}
    for name in ("processed_records_total", "checkpoint_bytes", "checkpoint_new_bytes", "last_checkpoint_age_seconds"):
        assert f"holdfast_{name}" not in found


def test_each_pipeline_has_exactly_one_status(fleet: Client) -> None:
    health = figures(fleet)["holdfast_health"]
    for name, status in {"inventory": "damaged", "payments": "late", "orders": "good"}.items():
        assert {key for key, value in health.items() if key.startswith(f"{name}/") and value} == {f"{name}/{status}"}


def test_names_of_the_figures_are_those_that_a_running_pipeline_has_where_both_tell_them(fleet: Client) -> None:
    from holdfast.pipeline.metrics import Metrics

    running = {sample.name for family in Metrics("x").registry.collect() for sample in family.samples}
    shared = {
        "holdfast_last_commit_age_seconds",
        "holdfast_last_checkpoint_age_seconds",
        "holdfast_capture_failures_total",
        "holdfast_fenced_total",
        "holdfast_last_epoch",
        "holdfast_checkpoint_bytes",
    }
    assert shared <= running
    assert shared <= set(figures(fleet))


def looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> tuple[Repository, Writer]:
    """A repository of which nothing is remembered between two looks, and who writes to it."""
    monkeypatch.setattr(fleet_module, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(fleet_module, "CLOSE_LOOK_SECONDS", 0.0)
    repository = make_repo(open_store("memory://"))
    return repository, Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=1)


def test_checkpoints_that_were_given_up_are_counted_once_each(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, it = looked_at_each_time(monkeypatch)
    it.claim(0)
    it.hint(it.run(0, range(3), 1_000, 1_000))
    with serving(repository) as client:
        client.wait_for_the_sweep()
        for number in range(3, 7):
            client.get("/api/pipelines/orders")
            assert figures(client)["holdfast_capture_failures_total"]["orders"] == number - 3
            it.put(it.keys.manifest(Slot(0, number)), VoidSlot(token="t", generation=0, slot=number))


def test_a_restart_is_no_fence_and_a_driver_that_runs_on_is_one(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, it = looked_at_each_time(monkeypatch)
    it.claim(0, age_ms=60_000)
    it.hint(it.run(0, range(3), 1_000, 50_000))

    with serving(repository) as client:

        def fenced() -> float:
            client.get("/api/pipelines/orders")
            return figures(client)["holdfast_fenced_total"]["orders"]

        client.wait_for_the_sweep()
        it.claim(1, "start", Slot(0, 2), age_ms=40_000)
        it.hint(it.run(1, range(3, 5), 1_000, 30_000, Slot(0, 2)))
        assert fenced() == 0
        it.claim(2, "rewind", Slot(0, 1), age_ms=20_000)
        assert fenced() == 0
        it.checkpoint(Slot(1, 2), 5, 10_000, Slot(1, 1))
        assert fenced() == 1
        it.checkpoint(Slot(1, 3), 6, 5_000, Slot(1, 2))
        assert fenced() == 1


def test_a_checkpoint_that_took_no_time_at_all_has_its_seconds(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.draft.time", SimpleNamespace(monotonic=lambda: 5.0))
    repository = make_repo(open_store("memory://"))
    with repository.pipeline("orders").recover(limits=PACKED) as run:
        save(run, 0)
    with serving(repository) as client:
        client.wait_for_the_sweep()
        assert figures(client)["holdfast_checkpoint_seconds"]["orders"] == 0.001
