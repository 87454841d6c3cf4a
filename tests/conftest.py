"""Session-wide servers and fresh stores in them, for every test that wants one."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Properties are never judged by the clock: the machine may be busy.
settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("holdfast")

pytest.register_assert_rewrite("holdfast.testing.store")

import servers  # noqa: E402
from holdfast.store import RetryPolicy, Store, open_store  # noqa: E402
from servers import AzureServer, KafkaServer, PostgresServer, S3Server, SparkCluster  # noqa: E402

LEFT_OUT: Counter[str] = Counter()
"""How many tests are for other commands, by their marker."""


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        LEFT_OUT.update([name for name in ("soak", "gcs", "upgrade") if item.get_closest_marker(name)][:1])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tests are chosen in the processes that run them, and counted in the one that started those."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(LEFT_OUT)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each of them chose from all tests."""
    LEFT_OUT.update(Counter(getattr(node, "workeroutput", {}).get("left_out", {})) - LEFT_OUT)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The end of every run: how many passed, failed and were skipped, and which were left for another command."""
    counts = [
        f"{len(terminalreporter.stats.get(what, []))} {what}" for what in ("passed", "failed", "error", "skipped")
    ]
    terminalreporter.section("result")
    terminalreporter.line(", ".join(counts) + " (why: above)" * bool(terminalreporter.stats.get("skipped")))
    meaning = dict(line.split(": ", 1) for line in config.getini("markers") if ": " in line)
    for name, count in sorted(LEFT_OUT.items()):
        terminalreporter.line(f"left out: {count} marked {name}, {meaning[name]}")


@pytest.fixture(scope="session", autouse=True)
def _nothing_from_outside() -> None:
    """The tests give every credential themselves; those of the machine, and its proxies, must not leak into them."""
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    for name in [*os.environ]:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")) and "HOLDFAST_TEST_GCS_URL" not in os.environ:
            del os.environ[name]
        if name.startswith("HOLDFAST_KEY"):
            del os.environ[name]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A good S3 server (SeaweedFS)."""
    with servers.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        _wait_for_the_first_write(open_store(server.url("warm-up"), server.options))
        yield server


@pytest.fixture(scope="session")
def bad_s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server that silently ignores create-if-absent (rclone)."""
    with servers.rclone(tmp_path_factory.mktemp("rclone")) as server:
        yield server


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """An Azure blob server (azurite)."""
    with servers.azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka broker; each test makes topics of its own in it."""
    with servers.kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server; each test makes a database of its own in it."""
    with servers.postgres() as server:
        yield server


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A standalone Spark cluster with two workers, for sessions in processes of their own.

    A test that kills a worker starts a cluster of its own with `servers.spark_cluster`.
    """
    with servers.spark_cluster(tmp_path_factory.mktemp("spark-cluster")) as cluster:
        yield cluster


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The address of an empty database in the PostgreSQL server."""
    return postgres_server.make_database(f"t-{uuid.uuid4().hex}")


@pytest.fixture
def s3_url(s3_server: S3Server) -> str:
    """The address of an empty place in the S3 server; open it with `s3_server.options`."""
    return s3_server.url(f"t-{uuid.uuid4().hex}")


@pytest.fixture
def s3_store(s3_server: S3Server, s3_url: str) -> Store:
    """An empty store in the S3 server."""
    return open_store(s3_url, s3_server.options)


@pytest.fixture
def azure_store(azure_server: AzureServer) -> Store:
    """An empty store in the Azure server."""
    return open_store(azure_server.url(f"t-{uuid.uuid4().hex}"), azure_server.options)


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    """An empty store on the local disk."""
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def memory_store() -> Store:
    """An empty store in memory."""
    return open_store("memory://")


@pytest.fixture(params=["file", "memory", "s3", "azure"])
def any_store(request: pytest.FixtureRequest) -> Store:
    """An empty store of each kind in turn."""
    store: Store = request.getfixturevalue(f"{request.param}_store")
    return store


@pytest.fixture
def quick() -> RetryPolicy:
    """A retry policy that gives up soon."""
    return RetryPolicy(budget_seconds=1, first_delay=0.01, max_delay=0.1)


def _wait_for_the_first_write(store: Store) -> None:
    # SeaweedFS answers before its volumes take writes; the store's own patience covers that.
    store.create("ready", b"")
