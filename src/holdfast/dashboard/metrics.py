"""Figures for Prometheus, told from the repository alone: whoever runs the pipelines need not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard.fleet import Row
from holdfast.dashboard.site import of
from holdfast.ids import now_ms
from holdfast.report import Glance

__all__ = ["Figures", "metrics"]

Figure = Callable[[Glance, int], float | None]


def _age(moment: int | None, now: int) -> float | None:
    return None if moment is None else max(0.0, (now - moment) / 1000)


def _known(it: Glance, figure: int) -> int | None:
    """A figure of a checkpoint, if there is one that can be read."""
    return None if it.figures_of is None else figure


GAUGES: list[tuple[str, str, Figure]] = [
    (
        "holdfast_last_commit_age_seconds",
        "Since the last commit that the repository knows of",
        lambda it, now: _age(it.committed_ms, now),
    ),
    (
        "holdfast_last_checkpoint_age_seconds",
        "Since the newest checkpoint that can be read was taken",
        lambda it, now: _age(it.timestamp_ms, now),
    ),
    (
        "holdfast_checkpoint_interval_seconds",
        "How far apart checkpoints usually are",
        lambda it, _: None if it.usual_interval_ms is None else it.usual_interval_ms / 1000,
    ),
    (
        "holdfast_watermark_lag_seconds",
        "How far the watermark was behind the clock at the newest checkpoint",
        lambda it, _: None if it.lag_ms is None else it.lag_ms / 1000,
    ),
    (
        "holdfast_last_epoch",
        "The last epoch that the repository knows to be committed",
        lambda it, _: it.committed_epoch,
    ),
    ("holdfast_checkpoint_epoch", "The epoch of the newest checkpoint", lambda it, _: it.epoch),
    ("holdfast_checkpoint_bytes", "Bytes of the newest checkpoint", lambda it, _: _known(it, it.bytes)),
    (
        "holdfast_checkpoint_new_bytes",
        "Bytes that the newest checkpoint brought",
        lambda it, _: _known(it, it.bytes_new),
    ),
    (
        "holdfast_checkpoint_seconds",
        "How long the newest checkpoint took until its bytes were durable",
        lambda it, _: it.took_ms / 1000 if it.took_ms else None,
    ),
    ("holdfast_generation", "The generation that runs, or ran last", lambda it, _: it.generation),
]

COUNTERS: list[tuple[str, str, Figure]] = [
    (
        "holdfast_processed_records",
        "Records that the pipeline says it has processed",
        # Not of an older checkpoint either: a counter that falls passes for one that began anew, and all of it for new.
        lambda it, _: None if it.problem else it.processed_records,
    ),
]

SEEN: list[tuple[str, str, Callable[[Row], int]]] = [
    (
        "holdfast_capture_failures",
        "Checkpoints seen to be given up since this began to look",
        lambda row: row.given_up,
    ),
    (
        # A claim alone tells nothing: an ordinary restart claims as well.
        "holdfast_fenced",
        "Drivers seen to take a checkpoint after another had claimed the pipeline; others leave no trace here",
        lambda row: row.fenced,
    ),
]


class Figures(Collector):
    """What Prometheus is told of the pipelines of a repository."""

    def __init__(self, rows: Sequence[Row], now: int) -> None:
        self._rows = rows
        self._now = now

    def collect(self) -> Iterable[Metric]:
        seen = [(row.name, row.seen) for row in self._rows if row.seen is not None]
        for name, text, figure in GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=["pipeline"])
            yield self._filled(gauge, seen, figure)
        for name, text, figure in COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["pipeline"])
            yield self._filled(counter, seen, figure)
        for name, text, count in SEEN:
            counter = CounterMetricFamily(name, text, labels=["pipeline"])
            for row in self._rows:
                counter.add_metric([row.name], count(row))
            yield counter
        health = GaugeMetricFamily("holdfast_health", "1, with the status that holds", labels=["pipeline", "status"])
        for row in self._rows:
            if row.health is not None:
                health.add_metric([row.name, row.health.status], 1.0)
        yield health
        yield GaugeMetricFamily("holdfast_pipelines", "Pipelines in the repository", value=len(self._rows))
        unread = len(self._rows) - len(seen)
        yield GaugeMetricFamily("holdfast_pipelines_unread", "Pipelines that were not looked at yet", value=unread)

    def _filled(
        self, family: GaugeMetricFamily | CounterMetricFamily, seen: Sequence[tuple[str, Glance]], figure: Figure
    ) -> Metric:
        for name, it in seen:
            value = figure(it, self._now)
            if value is not None:
                family.add_metric([name], float(value))
        return family


def metrics(request: Request) -> Response:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures(of(request).fleet.rows(), now_ms()))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
