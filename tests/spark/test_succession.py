"""Which generation the query of a directory publishes under: a pure table, and the same on real records."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast.claim import Reason, _claim
from holdfast.copying import copy_pipeline
from holdfast.errors import MissingRecords, NotActivated, OtherTimeline
from holdfast.records import Base, Claim, Decision, Owner
from holdfast.repository.pipeline import PipelineRecords
from holdfast.spark.capture import Capturer, Taken
from holdfast.spark.succession import (
    Join,
    Refuse,
    Running,
    TakeOver,
    decide,
    identify,
    stand,
    survey,
)
from holdfast.store.local_directory import LocalDirectory
from spark.directories import MadeDirectory

PIPELINE = "pipeline-1"
A, B = "query-a", "query-b"


def claim(generation: int, query_id: str | None = A, owner: str | None = None) -> Claim:
    return Claim(
        token=f"t{generation}",
        generation=generation,
        why="watch",
        who="me",
        repository_id="r",
        created_ms=0,
        query_id=query_id,
        owner=owner,
    )


def owner(token: str = "o", *, pipeline_id: str = PIPELINE, fork: bool = False) -> Owner:
    return Owner(
        token=token,
        pipeline_id=pipeline_id,
        pipeline="p",
        repository="r",
        generation=0,
        slot=2,
        epoch=2,
        checkpoint_id="c",
        query_id=A,
        created_ms=0,
        fork=fork,
    )


def decision(*claims: Claim, who: Running, void: tuple[int, ...] = (), open_: tuple[int, ...] = ()) -> object:
    """All claims have begun, but those that are void or still open."""
    bases = {c.generation: Base(token="b", generation=c.generation, void=c.generation in void) for c in claims}
    for generation in open_:
        del bases[generation]
    found = decide(claims, bases, who, PIPELINE)
    return Refuse if isinstance(found, Refuse) else found


PLAIN = Running("file:/d", A)
OTHER = Running("file:/d", B)
RESTORED = Running("file:/d", A, owner())
ELSEWHERE = Running("file:/d", A, owner("o2"))
FORKED = Running("file:/d", B, owner(fork=True))
FORK_OF_ANOTHER = Running("file:/d", B, owner(pipeline_id="another", fork=True))


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        pytest.param(TakeOver("nothing"), decision(who=PLAIN), id="the first claim begins at nothing"),
        pytest.param(Join(), decision(claim(0), who=PLAIN), id="a query joins its own generation"),
        pytest.param(Refuse, decision(claim(0), who=OTHER), id="another query is refused"),
        pytest.param(Refuse, decision(claim(0, None), who=PLAIN), id="what is no Spark query is not joined"),
        pytest.param(Refuse, decision(claim(0), claim(1, B), who=PLAIN), id="a query that was taken over is refused"),
        pytest.param(Join(), decision(claim(0, B), claim(1), who=PLAIN), id="only the newest generation counts"),
        pytest.param(
            TakeOver("newest"),
            decision(claim(0), claim(1), who=PLAIN, open_=(1,)),
            id="an own claim left open is over",
        ),
        pytest.param(
            TakeOver("newest"), decision(claim(0), claim(1), who=PLAIN, void=(1,)), id="a void claim is in the way"
        ),
        pytest.param(
            TakeOver("nothing"), decision(claim(0), who=PLAIN, open_=(0,)), id="a first claim that never began is none"
        ),
        pytest.param(
            TakeOver("newest"),
            decision(claim(0), claim(1, B), who=PLAIN, open_=(1,)),
            id="another query's claim that has not begun is claimed over",
        ),
        pytest.param(
            TakeOver("newest"),
            decision(claim(0), claim(1, B), who=PLAIN, void=(1,)),
            id="another query that never began is passed over",
        ),
        pytest.param(
            Refuse,
            decision(claim(0), claim(1, B), claim(2), who=PLAIN, open_=(2,)),
            id="a claim left open does not make another query's past one's own",
        ),
        pytest.param(TakeOver("restored"), decision(who=RESTORED), id="a restored directory in an empty pipeline"),
        pytest.param(
            TakeOver("restored"), decision(claim(0), who=RESTORED), id="a restored directory begins from its slot"
        ),
        pytest.param(
            TakeOver("restored"), decision(claim(0, B), who=RESTORED), id="a restored directory beats another query"
        ),
        pytest.param(
            Join(), decision(claim(0), claim(1, owner="o"), who=RESTORED), id="a restored directory joins its own claim"
        ),
        pytest.param(
            TakeOver("restored"),
            decision(claim(0), claim(1, owner="o"), who=RESTORED, open_=(1,)),
            id="a restored directory whose claim never began still begins from its slot",
        ),
        pytest.param(
            TakeOver("restored"),
            decision(claim(0), claim(1, owner="o"), claim(2), who=RESTORED, void=(1,)),
            id="nor one whose claim was voided",
        ),
        pytest.param(
            Refuse,
            decision(claim(0), claim(1, owner="o"), who=PLAIN),
            id="a directory that was moved from is refused",
        ),
        pytest.param(
            Refuse,
            decision(claim(0), claim(1, owner="o"), claim(2, owner="o2"), who=RESTORED),
            id="the first of two restored directories is refused once the second runs",
        ),
        pytest.param(
            Join(),
            decision(claim(0), claim(1, owner="o"), claim(2, owner="o2"), who=ELSEWHERE),
            id="and the second goes on",
        ),
        pytest.param(Refuse, decision(claim(0), who=FORKED), id="a fork never goes on in the pipeline it came from"),
        pytest.param(TakeOver("nothing"), decision(who=FORK_OF_ANOTHER), id="a fork begins a pipeline of its own"),
        pytest.param(
            Join(), decision(claim(0, B, "o"), who=FORK_OF_ANOTHER), id="a fork goes on in the pipeline of its own"
        ),
    ],
)
def test_the_decision(expected: object, found: object) -> None:
    assert found == expected


@pytest.fixture
def records() -> PipelineRecords:
    return holdfast.open("memory://", create=True).pipeline("p").records


@pytest.fixture
def made(tmp_path: Path) -> MadeDirectory:
    made = MadeDirectory(tmp_path / "ck")
    for _ in range(3):
        made.batch()
    return made


def take(records: PipelineRecords, made: MadeDirectory) -> Taken:
    capturer = Capturer(records, LocalDirectory(made.root))
    taken = capturer.take()
    capturer.close()
    assert isinstance(taken, Taken), taken
    return taken


def running(made: MadeDirectory) -> Running:
    return identify(LocalDirectory(made.root), made.query_id)


def test_a_survey_writes_nothing(records: PipelineRecords, made: MadeDirectory) -> None:
    found = survey(records, running(made))
    assert (found.decision, found.generation, found.tip) == (TakeOver("nothing"), -1, None)
    assert records.store.list(records.keys.prefix) == []


def test_a_survey_gives_the_newest_checkpoint_with_its_generation(
    records: PipelineRecords, made: MadeDirectory
) -> None:
    taken = take(records, made)
    found = survey(records, running(made))
    assert (found.decision, found.generation, found.tip) == (Join(), 0, taken.manifest)


def test_two_that_begin_at_once_leave_nothing_behind(records: PipelineRecords, made: MadeDirectory) -> None:
    late = survey(records, running(made))
    taken = take(records, made)
    assert isinstance(late.decision, TakeOver)
    standing = stand(records, running(made), late.decision, "watch")
    assert standing.tip == taken.manifest, "what another published since the survey is what this one goes on from"
    assert records.generations().bases[standing.generation].slot == taken.manifest.at


def test_another_query_that_came_first_is_found_out_when_the_claim_stands(
    records: PipelineRecords, made: MadeDirectory, tmp_path: Path
) -> None:
    late = survey(records, running(made))
    other = MadeDirectory(tmp_path / "other")
    other.batch(), other.batch()
    taken = take(records, other)
    assert isinstance(late.decision, TakeOver)
    with pytest.raises(OtherTimeline, match=other.query_id):
        stand(records, running(made), late.decision, "watch")
    assert records.locate().newest == taken.manifest.at
    other.batch()
    assert take(records, other).manifest.epoch == 1, "the claim that was given up does not stop the other query"


def test_a_claim_that_was_killed_before_it_began_is_taken_up(records: PipelineRecords, made: MadeDirectory) -> None:
    first = take(records, made).manifest
    _claim(records, Reason("watch", made.query_id, str(made.root)), activate=False)
    made.batch()
    second = take(records, made).manifest
    assert (second.generation, second.parent and second.parent.slot) == (2, first.slot)
    assert records.generations().bases[1].void


def test_a_lost_checkpoint_is_never_taken_for_none(records: PipelineRecords, made: MadeDirectory) -> None:
    taken = take(records, made)
    records.store.delete([records.keys.manifest(taken.manifest.at)])
    with pytest.raises(MissingRecords, match="0-0"):
        survey(records.unread(), running(made))


def test_a_copy_is_left_to_its_copier(records: PipelineRecords, made: MadeDirectory) -> None:
    take(records, made)
    copy = holdfast.open("memory://", create=True)
    copy_pipeline(records, copy.pipeline("p").records)
    with pytest.raises(NotActivated):
        survey(copy.pipeline("p").records, running(made))


def test_what_a_directory_was_restored_from_may_be_gone(records: PipelineRecords, made: MadeDirectory) -> None:
    take(records, made)
    gone = msgspec.structs.replace(owner(), pipeline_id=records.identity().pipeline_id, slot=0)
    records.create(records.keys.decision(gone.at), Decision(token="d", generation=0, slot=0, objects=[]))
    who = Running("file:/d", made.query_id, gone)
    found = survey(records, who)
    assert (found.decision, found.tip) == (TakeOver("restored"), None)
    assert isinstance(found.decision, TakeOver)
    assert stand(records, who, found.decision, "watch").tip is None
