"""What a Postgres sink does when the server, the connection or another driver is lost, asleep or in the way."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import adbc_driver_postgresql.dbapi as adbc
import pytest

from holdfast.decide.chain import NOTHING
from holdfast.errors import DamagedArtifact, Fenced, HoldfastError, SinkUnavailable
from holdfast.sinks import postgres as module
from holdfast.sinks.postgres import Postgres
from holdfast.testing.sinks import holder, stage, step, words
from servers import PostgresServer
from sinks.killing import kill_at_each_step, kill_at_random, overtake_at_each_step
from sinks.postgres_hands import Opened, Run, left_over, put
from sinks.sleeping import sleeping
from sinks.table_driver import truth
from sinks.wire_proxy import wire_proxy

STRICT = "CREATE TABLE words (id bigint PRIMARY KEY, word text, seen timestamptz)"
"""A table whose rows must be tried first."""


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for long."""
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(module, "FENCE_PATIENCE_SECONDS", 0.3)


# ---- the server ----


def test_a_load_that_a_crash_of_the_server_has_emptied_is_made_again(
    postgres_server: PostgresServer, opened: Opened, postgres_url: str, tmp_path: Path
) -> None:
    sink = opened(mode="upsert", key=["id"])
    staged = stage(tmp_path, words(*range(100)))
    token = sink.prepare(step(0), staged)
    postgres_server.stop("immediate")
    with pytest.raises(SinkUnavailable):
        sink.commit(step(0), token, staged)
    postgres_server.start()
    with adbc.connect(postgres_url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {token['stage']}")
        assert cursor.fetchall() == [(0,)]
        sink.commit(step(0), token, staged)
        cursor.execute("SELECT count(*), count(DISTINCT id) FROM words")
        assert cursor.fetchall() == [(100, 100)]
        cursor.execute("SELECT count(*) FROM pg_class WHERE relpersistence = 'u' AND relkind = 'r'")
        assert cursor.fetchall() == [(0,)]


def test_a_server_that_was_restarted_between_two_epochs_goes_unnoticed(
    postgres_server: PostgresServer, opened: Opened, tmp_path: Path
) -> None:
    sink = opened()
    put(sink, 0, stage(tmp_path, words(1)))
    postgres_server.stop()
    postgres_server.start()
    put(sink, 1, stage(tmp_path, words(2)))
    marker = sink.look()
    assert marker is not None
    assert marker.at.epoch == 1


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_connection_that_is_lost_in_the_commit_leaves_it_unknown_and_the_same_commit_settles_it(
    postgres_server: PostgresServer, postgres_url: str, run: Run, tmp_path: Path, lost: str
) -> None:
    with wire_proxy(postgres_server.port) as proxy:
        sink = Postgres(postgres_url.replace(f":{postgres_server.port}/", f":{proxy.port}/"), "words")
        sink.fence(holder(0), NOTHING)
        staged = stage(tmp_path, words(1, 2))
        token = sink.prepare(step(0), staged)
        setattr(proxy, lost, b"COMMIT")
        with pytest.raises(SinkUnavailable, match="not known"):
            sink.commit(step(0), token, staged)
        assert run("SELECT to_regclass('words')::text") == [(None,) if lost == "request" else ("words",)]
        sink.commit(step(0), token, staged)
        assert run("SELECT id FROM words ORDER BY 1") == [(1,), (2,)]
        put(sink, 1, stage(tmp_path, words(3)))
        sink.close()
    assert run("SELECT id FROM words ORDER BY 1") == [(1,), (2,), (3,)]
    assert left_over(run) == []


@pytest.mark.parametrize("words_of_it", [b"COPY ", b"UNLOGGED", b"PGCOPY"])
def test_a_connection_that_is_lost_in_a_prepare_leaves_nothing(
    postgres_server: PostgresServer, postgres_url: str, run: Run, tmp_path: Path, words_of_it: bytes
) -> None:
    run(STRICT)
    with wire_proxy(postgres_server.port) as proxy:
        sink = Postgres(postgres_url.replace(f":{postgres_server.port}/", f":{proxy.port}/"), "words")
        sink.fence(holder(0), NOTHING)
        proxy.request = words_of_it
        with pytest.raises(SinkUnavailable):
            sink.prepare(step(0), stage(tmp_path, words(1, 2)))
        assert left_over(run) == []
        put(sink, 0, stage(tmp_path, words(1, 2)))
        sink.close()


def test_a_staged_file_that_is_damaged_is_told_and_leaves_nothing(opened: Opened, run: Run, tmp_path: Path) -> None:
    run(STRICT)
    sink, staged = opened(), stage(tmp_path, words(*range(10)))
    path = Path(staged.place.url) / staged.staged.files[1].name
    path.write_bytes(b"PAR1" + path.read_bytes()[4:-4])
    with pytest.raises(DamagedArtifact):
        sink.prepare(step(0), staged)
    assert left_over(run) == []


# ---- locks and sessions ----


def test_a_prepare_leaves_no_transaction_open(opened: Opened, run: Run, tmp_path: Path) -> None:
    run(STRICT)
    opened().prepare(step(0), stage(tmp_path, words(1)))
    ours = "FROM pg_stat_activity WHERE application_name = 'holdfast pipeline-1 0' AND datname = current_database()"
    assert {state for (state,) in run(f"SELECT state {ours}")} == {"idle"}
    assert run(f"SELECT * FROM pg_locks WHERE pid IN (SELECT pid {ours})") == []


def test_a_table_that_another_holds_is_told_and_can_be_tried_again(
    soon: None, opened: Opened, postgres_url: str, run: Run, tmp_path: Path
) -> None:
    sink = opened()
    put(sink, 0, stage(tmp_path, words(1)))
    staged = stage(tmp_path, words(2))
    token = sink.prepare(step(1), staged)
    with adbc.connect(postgres_url) as other:
        with other.cursor() as cursor:
            cursor.execute("LOCK TABLE words")
        with pytest.raises(SinkUnavailable, match="held on to it"):
            sink.commit(step(1), token, staged)
    sink.commit(step(1), token, staged)
    assert run("SELECT id FROM words ORDER BY 1") == [(1,), (2,)]


def test_a_fence_takes_away_what_drivers_before_it_have_loaded_for_its_own_table(
    opened: Opened, run: Run, tmp_path: Path
) -> None:
    run("CREATE UNLOGGED TABLE words_holdfast_ (id int)")
    for table in ("words", "words_holdfast_1"):
        opened(table, 3, mode="overwrite").prepare(step(0, 3), stage(tmp_path, words(1)))
    before = set(left_over(run))
    assert len(before) == 3
    opened("words", 3)
    assert set(left_over(run)) == before
    opened("words", 4)
    assert before - set(left_over(run)) == {"words_holdfast_3_0_00000000"}


def test_many_that_fence_a_new_sink_at_once_leave_it_to_the_highest(opened: Opened, run: Run) -> None:
    sinks = [opened(table, None) for table in ("words", "words", "words", "others")]
    refused: list[HoldfastError] = []
    ready = threading.Barrier(len(sinks))

    def fence(generation: int) -> None:
        ready.wait()
        try:
            sinks[generation].fence(holder(generation), NOTHING)
        except Fenced as error:
            refused.append(error)

    threads = [threading.Thread(target=fence, args=(number,)) for number in range(len(sinks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [sink.look() for sink in sinks]
    assert [marker and marker.holder.generation for marker in found] == [2, 2, 2, 3]
    assert len(refused) <= 2


# ---- drivers that sleep ----


@pytest.fixture
def spec(postgres_url: str) -> dict[str, str]:
    return {"kind": "postgres", "url": postgres_url, "table": "words"}


@pytest.mark.parametrize("where", ["fence", "load", "rehearsal", "copy", "commit"])
def test_a_driver_that_sleeps_in_the_middle_of_a_step_keeps_nobody_waiting_and_commits_nothing(
    soon: None, opened: Opened, spec: dict[str, str], run: Run, tmp_path: Path, where: str
) -> None:
    if where in ("load", "rehearsal"):
        run(STRICT)
    with sleeping(spec, tmp_path, where) as zombie:
        taker = opened("words", 1)
        staged = stage(tmp_path, words(7, word="taken"))
        taker.commit(step(0, 1), taker.prepare(step(0, 1), staged), staged)
        zombie.send_signal(signal.SIGCONT)
        assert zombie.stdout is not None
        assert zombie.stdout.read().split() == ["SinkUnavailable", "Fenced"]
        assert zombie.wait() == 0
    assert run("SELECT id, word FROM words") == [(7, "taken7")]
    assert left_over(run) == []


def test_a_fence_ends_sessions_of_lower_generations_of_its_own_pipeline_alone(
    soon: None, opened: Opened, postgres_url: str, run: Run, tmp_path: Path
) -> None:
    names = ["holdfast pipeline-1 2", "holdfast pipeline-1 3", "holdfast pipeline-2 0", "holdfast pipeline-1 x", "psql"]
    opened("words", 2).close()
    others = [adbc.connect(f"{postgres_url}?application_name={name.replace(' ', '%20')}") for name in names]
    with others[0].cursor() as cursor:
        cursor.execute("UPDATE holdfast_sinks SET generation = 9")
    opened("words", 3)
    alive = run("SELECT application_name FROM pg_stat_activity WHERE datname = current_database()")
    assert [(name,) in alive for name in names] == [False, True, True, True, True]
    for other in others:
        other.close()


# ---- drivers that are killed ----


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_driver_that_is_killed_at_each_step_loses_and_doubles_nothing(
    spec: dict[str, str], run: Run, tmp_path: Path, mode: str
) -> None:
    kill_at_each_step({**spec, "mode": mode}, tmp_path)
    assert run("SELECT id, word FROM words ORDER BY 1") == truth(5, mode)
    assert left_over(run) == []


def test_drivers_that_are_killed_at_random_lose_and_double_nothing(
    spec: dict[str, str], run: Run, tmp_path: Path
) -> None:
    kill_at_random({**spec, "mode": "upsert"}, tmp_path, seed=11)
    assert run("SELECT id, word FROM words ORDER BY 1") == truth(25, "upsert")
    assert left_over(run) == []


def test_a_driver_that_wakes_after_it_was_overtaken_commits_nothing(
    spec: dict[str, str], run: Run, tmp_path: Path
) -> None:
    overtake_at_each_step(spec, tmp_path)
    assert run("SELECT id, word FROM words ORDER BY 1") == truth(6, "append")
