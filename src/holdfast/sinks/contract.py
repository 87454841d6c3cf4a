"""The contract of a sink: stage, decide, commit, and go back, each in one transaction with the marker.

A sink of your own subclasses Sink and joins the suite `holdfast.testing.SinkContract`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from holdfast.decide.chain import admit, go_back, raise_fence
from holdfast.epochs import Holder, Link, Marker, Step, Target
from holdfast.errors import BadValue, SinksAhead, SinkUnfit
from holdfast.store import Address

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from holdfast.sinks.staged import StagedRows

__all__ = [
    "Holder",
    "Link",
    "Marker",
    "Sink",
    "Step",
    "Target",
    "WriteMode",
    "admit",
    "go_back",
    "raise_fence",
    "refuse_foreign",
    "refuse_same",
    "same_target",
    "what_bars",
]

WriteMode: TypeAlias = Literal["append", "upsert", "overwrite"]
"""Rows are added; a row takes the place of the one with its key; an epoch takes the place of all before it."""


class Sink(ABC):
    """A transactional output. One object writes for one pipeline, from one thread at a time.

    What only looks (`look`, `why_not_back`, `foreign_since`, `cautions`) and `hold` may come from any other meanwhile.

    The order is fence, then for each epoch prepare and commit (or abort). Tokens and positions are JSON values that say
    the same in another process. What `prepare` made is invisible until the commit, and is found by its token alone:
    the process that commits may be another. `name` is the pipeline's name for it, and stands in every error.
    """

    modes: ClassVar[frozenset[WriteMode]] = frozenset({"append"})
    """What it can do."""

    can_jump: ClassVar[bool] = False
    """Whether it can go to any link that it ever held, also to one that is no ancestor of where it stands."""

    def __init__(self, mode: WriteMode, key: Sequence[str]) -> None:
        kind = type(self).__name__
        if mode not in self.modes:
            raise BadValue(f"mode of a {kind} sink", f"{mode!r} is not one of {', '.join(sorted(self.modes))}")
        if isinstance(key, str):
            raise BadValue(f"key of a {kind} sink", f"a list of columns, such as key=[{key!r}]")
        if (mode == "upsert") != bool(key):
            why = "upsert needs the columns that tell rows apart" if mode == "upsert" else f"{mode} takes no key"
            raise BadValue(f"key of a {kind} sink", why)
        self.mode = mode
        self.key = tuple(key)
        self.name = kind.lower()
        self.session: SparkSession | None = None
        """The query's own, for what is large; given before the fence, and None outside of a pipeline."""
        self._holder: Holder | None = None
        """Whom `fence` was called for."""

    @property
    @abstractmethod
    def target(self) -> str:
        """Where it writes to, without any secret: two sinks of one pipeline never have the same."""

    def _identity(self) -> Hashable:
        """What its target is told apart by, if `target` leaves out something or can be written in several ways."""
        return self.target

    @property
    def adopts_below(self) -> Address | None:
        """Where rows may be staged for their files to become its own, without a copy. Asked after the fence."""
        return None

    def has_adopted(self, token: Any) -> bool:  # noqa: ARG002 - for those that override it
        """Whether the staged files of an epoch that it has committed are its own now, and must stay."""
        return False

    @abstractmethod
    def look(self) -> Marker | None:
        """What the sink knows of itself; None for one that no pipeline has written to. Changes nothing."""

    @abstractmethod
    def fence(self, holder: Holder, begin: Link) -> Marker:
        """Have the sink take commits of this holder alone, and give what it holds; see `raise_fence`.

        Atomic in the sink itself: whatever another holder has under way, and has not committed, fails from now on. A
        sink without a marker begins at `begin`.
        """

    @abstractmethod
    def check(self, schema: pa.Schema) -> None:
        """Raise SinkUnfit for what could never be committed: no such table, other columns or types, a wrong key.

        Asked before anything runs, and changes nothing. A target that is not there yet may be made by `prepare`.
        """

    @abstractmethod
    def prepare(self, step: Step, rows: StagedRows) -> Any:
        """Bring the rows in, durably or to be redone from the staged files, invisibly; give the token to commit by.

        All that can refuse them must do so here: a failure here loses nothing, one after the decision stops the
        pipeline. A prepare that raises leaves nothing behind.
        """

    @abstractmethod
    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        """Make the rows visible and move the marker, in one transaction with the look at it; give the position.

        Idempotent for ever: a step that it holds is skipped. `rows` are the same as at prepare; after a crash they are
        all that is left beside the token. Raises Fenced and ChainBroken; see `admit`.
        """

    @abstractmethod
    def abort(self, token: Any) -> None:
        """Take away what this prepare has left, and nothing of another's. Never after the decision."""

    def keeps_way_back(self) -> bool:
        """Whether it will be able to take back what it is about to commit; asked after the fence, before the first
        epoch.

        If it will not, each decision stands in the repository before it commits: what it holds must be known to
        whoever comes next, also if the machine is lost. What is not sure is no.
        """
        return type(self).roll_back is not Sink.roll_back

    def why_not_back(self, target: Target) -> str | None:  # noqa: ARG002 - for those that override it
        """Why it can't go back to a target, such as that the way is gone; None if it can. Changes nothing."""
        return f"a {type(self).__name__} sink can't take back what it has committed"

    def foreign_since(self, target: Target) -> Sequence[str]:  # noqa: ARG002 - for those that override it
        """What others have changed since a target and going back would lose, in words, the oldest first.

        What changes no row, such as compaction, is none of it. Asked where `why_not_back` gives None.
        """
        return ()

    def cautions(self) -> Sequence[str]:
        """What takes the way back away in time, though it is there now, in words: for those who make a savepoint."""
        return ()

    def roll_back(self, target: Target, *, discard_foreign: bool = False) -> None:  # noqa: ARG002 - as above
        """Take back all after a target and move the marker there, in one transaction with the look at it.

        Idempotent: it may come again after a crash. Raises Fenced; whoever asks has asked `why_not_back` first. What
        `foreign_since` lists is looked for again in that very transaction, since others may have come meanwhile: unless
        it may be lost (`discard_foreign`) nothing changes, and SinksAhead is raised; see `refuse_foreign`.
        """
        raise SinkUnfit(self.name, self.why_not_back(target) or "it can't go back")

    def stand_at(self, target: Target) -> None:  # noqa: ARG002 - for those that override it
        """Move the marker to a target and leave the rows: what is run again will be there twice.

        For a sink that can't go back, and only where that was accepted. As `roll_back` otherwise.
        """
        raise SinkUnfit(self.name, f"a {type(self).__name__} sink takes no rows twice")

    def release(self, before: Link) -> None:  # noqa: ARG002 - for those that override it
        """Nobody will go back before this link any more: what was kept for that may go."""
        return

    def hold(self, savepoints: Mapping[str, Target]) -> None:  # noqa: B027 - for those that override it
        """These are the savepoints that there are: keep the way back to each, and let go of all others held before.

        One whose way back is gone already is passed over: `why_not_back` tells. Comes again and again with the same.
        """

    def _mine(self) -> Holder:
        """The holder that this sink was fenced for: only it may write. Raises SinkUnfit before the fence."""
        if self._holder is None:
            raise SinkUnfit(self.name, "it was not fenced first")
        return self._holder

    def close(self) -> None:
        """Let go of what is held open. An epoch that was prepared and not committed is redone from its files."""
        return


def what_bars(sink: Sink, target: Target, *, discard_foreign: bool = False) -> str | None:
    """Why a sink may not be taken back to a target; None if it may. `discard_foreign` gives up what others wrote."""
    why = sink.why_not_back(target)
    if why is not None or discard_foreign:
        return why
    return _told(sink.foreign_since(target))


def refuse_same(sinks: Mapping[str, Sink]) -> None:
    """Raise SinkUnfit if two sinks of a pipeline have one target: what the first commits the second would skip."""
    first: dict[Hashable, str] = {}
    for name, sink in sinks.items():
        other = first.setdefault(sink._identity(), name)
        if other != name:
            raise same_target(sink, [other])


def same_target(sink: Sink, others: Sequence[str]) -> SinkUnfit:
    """The error of a sink that writes to where one of these does."""
    named = " or ".join(map(repr, others))
    return SinkUnfit(sink.name, f"its target {sink.target} is that of {named} too, and each sink needs one of its own")


def refuse_foreign(sink: str, target: Target, others: Sequence[str]) -> None:
    """Raise SinksAhead if going back to a target would lose what others have changed since, which is listed."""
    if why := _told(others):
        raise SinksAhead(str(target.at), [f"{sink}: {why}"])


def _told(others: Sequence[str]) -> str | None:
    if not others:
        return None
    return f"others have changed it since, and without discard_foreign=True that is not lost: {', '.join(others)}"
