"""The figures of a running pipeline, for Prometheus: ages, durations, bytes, failures, fences."""

from __future__ import annotations

import time
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from holdfast.errors import BadValue
from holdfast.events import CaptureFailed, CheckpointTaken, EpochCommitted, EpochFailed, Event, TakenOver

__all__ = ["Metrics"]

SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
LOOPBACK = "127.0.0.1"


class Metrics:
    """A listener that keeps figures. Until there was an epoch or a checkpoint, its age counts from the start on."""

    def __init__(self, pipeline: str) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        self._serving: list[tuple[WSGIServer, Thread]] = []
        self._epochs = self._counter("holdfast_epochs", "Epochs committed in every sink")
        self._rows = self._counter("holdfast_rows", "Rows put out")
        self._bytes = self._counter("holdfast_staged_bytes", "Bytes staged")
        self._commit = self._histogram("holdfast_epoch_seconds", "From an epoch's begin to its commit in every sink")
        self._steps = Counter(
            "holdfast_epoch_step_seconds", "Where the time of epochs went", ["pipeline", "step"], registry=self.registry
        )
        self._failed = self._counter("holdfast_epoch_failures", "Epochs that failed")
        self._epoch = self._gauge("holdfast_last_epoch", "The last epoch that was committed")
        self._checkpoints = self._counter("holdfast_checkpoints", "Checkpoints taken")
        self._capture = self._histogram("holdfast_capture_seconds", "How long a capture took")
        self._captured = self._counter("holdfast_captured_bytes", "New bytes that captures sent")
        self._size = self._gauge("holdfast_checkpoint_bytes", "Bytes of the last checkpoint")
        self._failures = self._counter("holdfast_capture_failures", "Captures that failed")
        self._fenced = self._counter("holdfast_fenced", "Take-overs by another")
        self._committed = self._taken = time.monotonic()
        commit = self._gauge("holdfast_last_commit_age_seconds", "Since the last commit in every sink")
        commit.set_function(lambda: time.monotonic() - self._committed)
        taken = self._gauge("holdfast_last_checkpoint_age_seconds", "Since the last checkpoint was durable")
        taken.set_function(lambda: time.monotonic() - self._taken)

    def __call__(self, event: Event) -> None:
        match event:
            case EpochCommitted():
                self._committed = time.monotonic()
                self._epochs.inc()
                self._epoch.set(event.epoch)
                self._rows.inc(event.rows)
                self._bytes.inc(event.bytes)
                self._commit.observe(event.seconds)
                for step, seconds in event.steps.items():
                    self._steps.labels(self._pipeline, step).inc(seconds)
            case CheckpointTaken():
                self._taken = time.monotonic()
                self._checkpoints.inc()
                self._capture.observe(event.seconds)
                self._captured.inc(event.bytes_read)
                self._size.set(event.bytes)
            case EpochFailed():
                self._failed.inc()
            case CaptureFailed():
                self._failures.inc()
            case TakenOver():
                self._fenced.inc()

    def serve(self, port: int, address: str = LOOPBACK) -> int:
        """Answer Prometheus at a port of this machine (0: any that is free) and give it; the run's end is its end."""
        try:
            server, thread = start_http_server(port, address, self.registry)
        except OSError as error:
            raise BadValue("metrics port", f"{address}:{port}: {error.strerror or error}") from None
        self._serving.append((server, thread))
        return int(server.server_port)

    def close(self) -> None:
        """Answer no more, and let the ports go. The figures stay."""
        while self._serving:
            server, thread = self._serving.pop()
            server.shutdown()
            server.server_close()
            thread.join()

    def _counter(self, name: str, help_text: str) -> Counter:
        return Counter(name, help_text, ["pipeline"], registry=self.registry).labels(self._pipeline)

    def _gauge(self, name: str, help_text: str) -> Gauge:
        return Gauge(name, help_text, ["pipeline"], registry=self.registry).labels(self._pipeline)

    def _histogram(self, name: str, help_text: str) -> Histogram:
        return Histogram(name, help_text, ["pipeline"], registry=self.registry, buckets=SECONDS).labels(self._pipeline)
