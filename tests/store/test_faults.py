"""A real S3 server behind a network that fails: the store rides it out, or says truly what it does not know."""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Iterator

import pytest

import fault_proxy
from fault_proxy import FaultProxy, answer
from holdfast.errors import AccessDenied, ObjectMissing, OutcomeUnknown, PlaceMissing, StoreFailure, StoreUnavailable
from holdfast.store import CHUNK, RetryPolicy, Store, open_store
from servers import S3Server

BODY = bytes(range(256)) * 4000


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    proxy = FaultProxy(s3_server.address)
    yield proxy
    proxy.end()


@pytest.fixture
def place(s3_server: S3Server) -> str:
    return s3_server.url(f"t-{uuid.uuid4().hex}")


@pytest.fixture
def direct(s3_server: S3Server, place: str) -> Store:
    """The same place without the proxy."""
    return open_store(place, s3_server.options)


@pytest.fixture
def patient(s3_server: S3Server, proxy: FaultProxy, place: str) -> Store:
    policy = RetryPolicy(budget_seconds=30, first_delay=0.01, max_delay=0.1)
    return open_store(place, {**s3_server.options, "endpoint": proxy.endpoint, "timeout": "1s"}, policy)


@pytest.fixture
def hasty(s3_server: S3Server, proxy: FaultProxy, place: str) -> Store:
    policy = RetryPolicy(budget_seconds=0.3, first_delay=0.01, max_delay=0.05)
    return open_store(place, {**s3_server.options, "endpoint": proxy.endpoint, "timeout": "1s"}, policy)


PASSING = {
    "a reset in the request": fault_proxy.cut_request,
    "a lost reply": fault_proxy.lose_reply,
    "a stall": fault_proxy.stall,
    "500": answer("500 Internal Server Error"),
    "503": answer("503 Slow Down"),
    "429": answer("429 Too Many Requests"),
    "409": answer("409 Conflict"),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_every_verb_outlasts(fault: fault_proxy.Fault, proxy: FaultProxy, patient: Store, direct: Store) -> None:
    direct.create("known", BODY)
    proxy.order("PUT", fault)
    assert patient.create("created", BODY) is True
    proxy.order("PUT", fault)
    patient.put("hint", b"1")
    proxy.order("GET", fault)
    assert patient.get("known") == BODY
    proxy.order("GET", fault)
    assert patient.get_ranges("known", [(3, 5)]) == [BODY[3:8]]
    proxy.order("GET", fault)
    assert patient.list("") == [("created", len(BODY)), ("hint", 1), ("known", len(BODY))]
    proxy.order("GET", fault)
    assert patient.folders("") == []
    proxy.order("PUT", fault)
    patient.copy("known", "copied")
    proxy.order("POST", fault)
    patient.delete(["hint"])
    assert proxy.left == 0
    assert {info.key for info in direct.list("")} == {"created", "known", "copied"}
    assert direct.get("created") == BODY


def test_a_storm_of_errors_is_outlasted(proxy: FaultProxy, patient: Store, direct: Store) -> None:
    proxy.order("PUT", answer("503 Slow Down"), times=15)
    assert patient.create("k", b"1") is True
    assert direct.get("k") == b"1"


def test_a_download_that_breaks_off_is_taken_up_again(proxy: FaultProxy, patient: Store, direct: Store) -> None:
    whole = b"".join(hashlib.sha256(bytes([n % 251])).digest() * 32768 for n in range(20))
    direct.write("big", [whole])
    proxy.order("GET", fault_proxy.cut_reply, times=2)
    assert b"".join(patient.read("big")) == whole
    proxy.order("GET", fault_proxy.cut_reply)
    assert patient.get("big") == whole
    assert proxy.left == 0


def test_a_stream_is_taken_up_where_it_stood(proxy: FaultProxy, patient: Store, direct: Store) -> None:
    direct.write("big", [bytes(CHUNK), bytes(CHUNK)])
    stream = patient.read("big")
    assert len(next(stream)) == CHUNK
    proxy.order("GET", fault_proxy.cut_reply)
    assert len(next(stream)) == CHUNK
    assert proxy.left == 0
    assert list(stream) == []


def test_slow_bytes_are_waited_for(proxy: FaultProxy, patient: Store, direct: Store) -> None:
    direct.create("k", BODY)
    proxy.order("GET", fault_proxy.slow_reply)
    assert patient.get("k") == BODY
    assert len(proxy.seen) == 1


def test_a_streamed_upload_outlasts_faults_of_its_parts(proxy: FaultProxy, patient: Store, direct: Store) -> None:
    chunks = [bytes([n]) * (4 * 1024 * 1024) for n in range(7)]
    proxy.order("POST", answer("503 Slow Down"))
    proxy.order("PUT", fault_proxy.cut_request)
    proxy.order("PUT", answer("500 Internal Server Error"), times=2)
    assert patient.write("big", chunks) == sum(map(len, chunks))
    assert proxy.left == 0
    assert direct.get("big") == b"".join(chunks)


def test_a_streamed_upload_whose_last_reply_is_lost_has_landed(
    proxy: FaultProxy, patient: Store, direct: Store
) -> None:
    proxy.order("POST", fault_proxy.pass_on)
    proxy.order("POST", fault_proxy.lose_reply)
    proxy.order("POST", answer("404 Not Found"))  # as a server says that knows the upload no more
    assert patient.write("big", [bytes(CHUNK), b"1"]) == CHUNK + 1
    assert proxy.left == 0
    assert direct.list("") == [("big", CHUNK + 1)]


def test_a_streamed_upload_that_keeps_failing_is_told_and_leaves_nothing(
    proxy: FaultProxy, hasty: Store, direct: Store
) -> None:
    proxy.order("PUT", answer("503 Slow Down"), times=1000)
    with pytest.raises(StoreUnavailable, match="write big"):
        hasty.write("big", [bytes(CHUNK), bytes(CHUNK)])
    assert direct.list("") == []


def test_a_create_whose_reply_is_lost_is_settled_as_ours(proxy: FaultProxy, patient: Store, direct: Store) -> None:
    proxy.order("PUT", fault_proxy.lose_reply)
    assert patient.create("k", b"mine") is True
    assert [request.split()[0] for request in proxy.seen] == ["PUT", "GET"]
    assert direct.get("k") == b"mine"


def test_a_create_whose_reply_is_lost_is_settled_as_anothers(proxy: FaultProxy, patient: Store, direct: Store) -> None:
    direct.create("k", b"theirs")
    proxy.order("PUT", fault_proxy.lose_reply)
    assert patient.create("k", b"mine") is False
    assert direct.get("k") == b"theirs"


def test_a_conflict_over_an_absent_key_is_tried_again(proxy: FaultProxy, patient: Store, direct: Store) -> None:
    proxy.order("PUT", answer("409 Conflict"), times=2)
    assert patient.create("k", b"mine") is True
    assert direct.get("k") == b"mine"


def test_a_create_that_stays_in_doubt_is_unknown_and_not_failed(proxy: FaultProxy, hasty: Store, direct: Store) -> None:
    proxy.order("PUT", fault_proxy.lose_reply)
    proxy.order("GET", answer("503 Slow Down"), times=1000)
    with pytest.raises(OutcomeUnknown) as raised:
        hasty.create("k", b"mine")
    assert raised.value.key == "k"
    assert direct.get("k") == b"mine"


def test_a_create_in_doubt_stays_unknown_when_the_look_is_denied(proxy: FaultProxy, hasty: Store) -> None:
    proxy.order("PUT", fault_proxy.lose_reply)
    proxy.order("GET", answer("403 Forbidden"))
    with pytest.raises(OutcomeUnknown):
        hasty.create("k", b"mine")


def test_a_create_that_never_got_through_is_known_to_have_failed(proxy: FaultProxy, hasty: Store) -> None:
    with proxy.down(), pytest.raises(StoreUnavailable, match="Connection refused") as raised:
        hasty.create("k", b"mine")
    assert raised.value.action == "create k"
    assert raised.value.seconds >= 0.3
    assert hasty.create("k", b"mine") is True


def test_refused_connections_are_outlasted(proxy: FaultProxy, patient: Store) -> None:
    patient.create("k", b"1")
    answers: list[bytes] = []
    with proxy.down():
        reader = threading.Thread(target=lambda: answers.append(patient.get("k")))
        reader.start()
        time.sleep(0.3)
        assert answers == []
    reader.join(20)
    assert answers == [b"1"]


def test_a_flipped_bit_in_a_download_is_not_noticed_here(proxy: FaultProxy, patient: Store, direct: Store) -> None:
    """The reason why everything above the store checks digests."""
    direct.create("k", BODY)
    proxy.order("GET", fault_proxy.flip_byte)
    damaged = patient.get("k")
    assert len(damaged) == len(BODY)
    assert damaged != BODY


PERMANENT = {
    "403": (answer("403 Forbidden"), AccessDenied),
    "401": (answer("401 Unauthorized"), AccessDenied),
    "400": (answer("400 Bad Request"), StoreFailure),
    "501": (answer("501 Not Implemented"), StoreFailure),
    "301": (answer("301 Moved Permanently"), StoreFailure),
}


@pytest.mark.parametrize(("fault", "error"), PERMANENT.values(), ids=PERMANENT)
def test_a_permanent_error_is_told_at_once(
    fault: fault_proxy.Fault, error: type[Exception], proxy: FaultProxy, patient: Store
) -> None:
    for method, call in [
        ("PUT", lambda: patient.create("k", b"1")),
        ("GET", lambda: patient.get("k")),
        ("GET", lambda: patient.list("")),
        ("POST", lambda: patient.delete(["k"])),
    ]:
        proxy.seen.clear()
        proxy.order(method, fault)
        with pytest.raises(error):
            call()
        assert len(proxy.seen) == 1


def test_wrong_keys_are_denied_at_once_by_every_verb(proxy: FaultProxy, s3_server: S3Server, place: str) -> None:
    for wrong in ({"secret_access_key": "wrong"}, {"access_key_id": "nobody"}, {"skip_signature": "true"}):
        options = {**s3_server.options, "endpoint": proxy.endpoint, **wrong}
        if "skip_signature" in wrong:
            del options["access_key_id"], options["secret_access_key"]
        store = open_store(place, options)
        for call in (
            lambda store=store: store.create("k", b"1"),
            lambda store=store: store.get("k"),
            lambda store=store: store.list(""),
            lambda store=store: store.delete(["k"]),
            lambda store=store: store.write("k", [bytes(CHUNK), bytes(CHUNK)]),
        ):
            with pytest.raises(AccessDenied) as raised:
                call()
            assert s3_server.secret_access_key not in str(raised.value)
    assert len(proxy.seen) == 15


def test_a_missing_bucket_is_not_a_missing_object(s3_server: S3Server) -> None:
    store = open_store(f"s3://no-such-bucket-{uuid.uuid4().hex[:8]}/x", s3_server.options)
    for call in (
        lambda: store.get("k"),
        lambda: store.list(""),
        lambda: store.delete(["k"]),
        lambda: store.folders(""),
    ):
        with pytest.raises(PlaceMissing):
            call()


def test_a_missing_object_costs_one_request(proxy: FaultProxy, patient: Store, direct: Store) -> None:
    direct.create("other", b"1")
    with pytest.raises(ObjectMissing):
        patient.get("k")
    assert len(proxy.seen) == 1


def test_a_small_create_costs_one_request(proxy: FaultProxy, patient: Store) -> None:
    patient.create("k", BODY)
    assert len(proxy.seen) == 1


def test_near_ranges_cost_one_request(proxy: FaultProxy, patient: Store, direct: Store) -> None:
    direct.create("k", BODY)
    asked = [(n * 5000, 100) for n in range(150)]
    assert patient.get_ranges("k", asked) == [BODY[start : start + size] for start, size in asked]
    assert len(proxy.seen) == 1
