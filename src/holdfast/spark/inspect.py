"""What a Spark checkpoint directory holds, without a repository: which batches are whole, and what is wrong.

Every committed batch is looked at by its names; the files of the newest whole one are read to the end. What the
directory can't know of itself (a bit turned over in a file without any checksum) only a comparison with what was
captured finds: see `holdfast.spark.held`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from holdfast.errors import ChangedWhileRead, DamagedRecord, NotCapturable, NoWholeBatch, ObjectMissing
from holdfast.records import Owner
from holdfast.spark.cut import Broken, Cut, Gone, Operator, Unsupported, batches_in, cut_at
from holdfast.spark.intact import Progress, Proof, Verdict, judge, read_files
from holdfast.spark.logs import Malformed, parse_offsets, parse_query_id
from holdfast.spark.meaning import meaning
from holdfast.spark.state import Snapshots, provider_of
from holdfast.spark.succession import OWNER, identify
from holdfast.store.directory import Directory, FileStat, Look, is_leftover

__all__ = ["Fault", "Inspected", "Severity", "inspect"]

Severity = Literal["damage", "warning", "note"]

ATTEMPTS = 5
NOT_THERE = "it is not there"


@dataclass(frozen=True)
class Fault:
    """Something that is not as it should be: which file, what is wrong, what it means, and which batches it hits."""

    severity: Severity
    name: str
    what: str
    means: str = ""
    batches: tuple[int, ...] = ()


@dataclass
class Inspected:
    """What a directory holds. `whole` are the batches that could be restarted from, as far as they were looked at.

    `looked_at` are the committed batches whose files were looked for, `proofs` what vouches for the files of the newest
    whole one. The rest describes the newest batch whose logs can be read.
    """

    directory: str
    query_id: str | None = None
    owner: Owner | None = None
    planned: int | None = None
    committed: tuple[int, ...] = ()
    looked_at: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()
    cleaned: tuple[int, ...] = ()
    """Batches whose state Spark's own clean-up has removed: they are still in the logs and can't be gone back to."""
    operators: tuple[Operator, ...] = ()
    provider: str | None = None
    checkpoint_format: int | None = None
    files: int = 0
    proofs: Counter[Proof] = field(default_factory=Counter)
    files_read: int = 0
    bytes_read: int = 0
    faults: list[Fault] = field(default_factory=list)

    @property
    def newest_committed(self) -> int | None:
        return self.committed[-1] if self.committed else None

    @property
    def newest_whole(self) -> int | None:
        return self.whole[-1] if self.whole else None

    @property
    def damaged(self) -> list[Fault]:
        return [fault for fault in self.faults if fault.severity == "damage"]


def inspect(directory: Directory, *, read_all: bool = False, progress: Progress | None = None) -> Inspected:
    """Look at a directory, of a running query or a stopped one. Nothing is changed.

    `read_all` reads the files of every whole batch, and looks at every batch in an object store too, where each look
    costs requests. Raises NoWholeBatch if this is no checkpoint directory, NotCapturable for one of another mode, and
    ChangedWhileRead if a running query kept replacing what was read.
    """
    for attempt in range(ATTEMPTS):
        inspector = _Inspector(directory, read_all, progress)
        try:
            found = inspector.run()
        except (ObjectMissing, ChangedWhileRead):
            if attempt == ATTEMPTS - 1:
                raise
            continue
        # What seems to be missing may have been overtaken: it counts only if the query has not moved on meanwhile.
        if not found.faults or batches_in(directory.look()) == inspector.batches:
            return found
    raise ChangedWhileRead(directory.url, "offsets")


class _What(NamedTuple):
    """What is wrong with a file; `missing` tells one that is not there from one that is damaged."""

    name: str
    why: str
    missing: bool


class _Inspector:
    def __init__(self, directory: Directory, read_all: bool, progress: Progress | None) -> None:
        self._directory = _Remembering(directory)
        self._look = directory.look()
        self._read_all = read_all
        self._progress = progress
        self.batches = batches_in(self._look)
        self._known = Snapshots()
        self._verdicts: dict[str, Verdict] = {}
        self._found = Inspected(directory.url)
        self._newest: Cut | None = None
        self._missing: dict[_What, list[int]] = {}

    def run(self) -> Inspected:
        found, batches = self._found, self.batches
        if not (batches.offsets or batches.commits or self._look.stat("metadata")):
            raise NoWholeBatch(self._directory.url, "it has no offsets, no commits and no metadata of a Spark query")
        found.planned = batches.offsets[-1] if batches.offsets else None
        found.committed = batches.commits
        self._identify()
        self._compare_logs()
        self._look_at_batches()
        self._report_missing()
        self._find_gaps()
        if self._newest is not None:
            self._expect_checksums(self._newest)
            self._find_orphans(self._newest)
        return found

    # ---- who ----

    def _identify(self) -> None:
        try:
            query_id = parse_query_id(self._directory.read("metadata")[0])
        except ObjectMissing:
            if not self.batches.commits:
                self._fault("damage", "metadata", self._gone("metadata"), missing=True)
            return
        except Malformed as error:
            if not self.batches.commits:
                self._fault("damage", "metadata", str(error), missing=False)
            return
        self._found.query_id = query_id
        try:
            self._found.owner = identify(self._directory, query_id).owner
        except DamagedRecord as error:
            means = "Holdfast can't tell which checkpoint this directory was restored from"
            self._found.faults.append(Fault("warning", OWNER, error.why, means))

    # ---- the logs against each other ----

    def _compare_logs(self) -> None:
        offsets, commits = self.batches.offsets, self.batches.commits
        last = commits[-1] if commits else -1
        ahead = [batch for batch in offsets if batch > last]
        lost = [batch for batch in ahead if f".{batch}.crc" in self._look.leftovers("commits")]
        for batch in lost or ahead[:-1]:
            why = self._gone(f"commits/{batch}") if lost else "the offset log is ahead by more than one batch"
            self._fault("damage", f"commits/{batch}", why, missing=True, batches=[batch])
        for folder in ("", "offsets", "commits"):
            for name in self._look.leftovers(folder):
                if name.endswith(".tmp"):
                    what = "a temporary file that was never renamed, left by a crash"
                    place = f"{folder}/{name}" if folder else name
                    self._found.faults.append(Fault("note", place, what, "Spark passes over it"))

    def _find_gaps(self) -> None:
        """Batches that neither log has, between others. Without state they are what asynchronous progress leaves."""
        noted = {fault.name for fault in self._found.faults}
        for first, end in _gaps(self.batches.offsets):
            missing = [b for b in range(first, end + 1) if b not in self.batches.commits]
            names = [f"offsets/{b}" for b in missing if f"offsets/{b}" not in noted]
            if names and self._look.folders("state"):
                means = "a restart does not need them"
                self._found.faults.append(Fault("warning", ", ".join(names), "a gap in the offset log", means))

    # ---- batches ----

    def _look_at_batches(self) -> None:
        found, commits = self._found, self.batches.commits
        whole: list[int] = []
        looked: list[int] = []
        proven = False
        for count, batch in enumerate(reversed(commits)):
            if proven and self._directory.costly and not self._read_all:
                break
            looked.append(batch)
            if self._progress and proven:
                self._progress("looking at older batches", count, len(commits))
            cut = cut_at(self._directory, self._look, batch, self._known)
            if isinstance(cut, Unsupported) and not self._damaged_logs(batch):
                raise NotCapturable(self._directory.url, cut.why)
            if not isinstance(cut, Cut):
                self._note_missing(batch, cut, deep=not proven)
                continue
            self._describe(cut)
            if (self._read_all or not proven) and not self._read(cut, newest=not proven):
                continue
            proven = True
            if not any(self._is_faulty(name) for name in cut.files):
                whole.append(batch)
        found.looked_at = tuple(reversed(looked))
        found.whole = tuple(reversed(whole))

    def _is_faulty(self, name: str) -> bool:
        verdict = self._verdicts.get(name)
        return verdict is not None and bool(verdict.fault or verdict.beside)

    def _describe(self, cut: Cut) -> None:
        found = self._found
        if found.provider is None:
            provider = provider_of(cut.offsets.provider)
            found.operators = tuple(cut.operators.values())
            found.provider = provider.name if provider and cut.operators else ""
            found.checkpoint_format = (2 if cut.commit.state_ids else 1) if cut.operators else None

    def _read(self, cut: Cut, *, newest: bool) -> bool:
        """Read what a cut consists of and was not read yet; whether all of it is intact."""
        found = self._found

        def examine(name: str) -> Verdict:
            return judge(self._directory.plain, name, cut.offsets.codec)

        new = [name for name in cut.files if name not in self._verdicts]
        for verdict in read_files(
            self._directory, sorted(new), examine, lambda name: cut.files[name].size, self._progress
        ):
            self._verdicts[verdict.name] = verdict
            found.files_read += 1
            found.bytes_read += verdict.size
        faulty = [self._verdicts[name] for name in cut.files if self._is_faulty(name)]
        for verdict in faulty:
            self._note(cut.epoch, verdict.name, _why(verdict))
        for name, why in self._other_forms(cut):
            self._note(cut.epoch, name, why)
            faulty.append(self._verdicts[name])
        if newest and not faulty:
            found.files = len(cut.files)
            found.proofs = Counter(self._verdicts[name].proof for name in cut.files)
            self._newest = cut
        return not faulty

    def _other_forms(self, cut: Cut) -> Iterator[tuple[str, str]]:
        """What two files say of the same thing, and should not say differently."""
        before = f"offsets/{cut.epoch - 1}"
        if before in cut.read:
            sources = parse_offsets(cut.read[before][0]).sources
            if len(sources) != len(cut.offsets.sources):
                why = f"it names {len(cut.offsets.sources)} sources where {before} names {len(sources)}"
                yield f"offsets/{cut.epoch}", why

    def _expect_checksums(self, cut: Cut) -> None:
        """Where most state files have a checksum of Spark's beside them, one that has none has lost it."""
        if not cut.commit.state_ids:
            return
        should = [n for n in cut.files if n.endswith((".zip", ".changelog"))]
        without = [n for n in should if f"{n}.crc" not in cut.files]
        if len(without) < len(should):
            for name in without:
                checksum = f"{name}.crc"
                self._warn(checksum, "Spark no longer checks the file beside it")

    def _find_orphans(self, cut: Cut) -> None:
        """Sidecars whose file is gone: Hadoop removes both, so somebody else removed the file."""
        folders = {name.rpartition("/")[0] for name in cut.files}
        folders |= {f"state/{number}/_metadata" for number in cut.operators}
        noted = {fault.name for fault in self._found.faults}
        for folder in sorted(folders):
            for sidecar in self._look.leftovers(folder):
                plain = sidecar.removeprefix(".").removesuffix(".crc")
                name = f"{folder}/{plain}" if folder else plain
                if not sidecar.endswith(".crc") or is_leftover(plain) or name in noted:
                    continue
                if self._is_orphan(sidecar, folder, name):
                    self._warn(name, f"batch {cut.epoch} is whole without it")

    def _is_orphan(self, sidecar: str, folder: str, name: str) -> bool:
        """Asked twice, the file last: Spark's clean-up may be between the two."""
        return self._look.stat(name) is None and sidecar in self._look.leftovers(folder)

    # ---- what is missing ----

    def _note_missing(self, batch: int, outcome: Gone | Broken | Unsupported, *, deep: bool) -> None:
        damaged = self._damaged_logs(batch) if deep or isinstance(outcome, Unsupported) else []
        if damaged or isinstance(outcome, Unsupported):
            # What a damaged file says is missing may never have been.
            for verdict in damaged:
                self._note(batch, verdict.name, _why(verdict))
        elif isinstance(outcome, Broken):
            for said in outcome.why:
                name, _, why = said.partition(": ")
                self._note(outcome.epoch, name, why)
        elif outcome.why == NOT_THERE:
            self._note(outcome.epoch, outcome.name, self._gone(outcome.name), missing=True)
        else:
            self._note(outcome.epoch, outcome.name, outcome.why, missing=self._look.stat(outcome.name) is None)

    def _note(self, batch: int, name: str, why: str, *, missing: bool = False) -> None:
        self._missing.setdefault(_What(name, why, missing), []).append(batch)

    def _damaged_logs(self, batch: int) -> list[Verdict]:
        """Of what says which files a batch needs, that which is damaged itself."""
        logs = ["metadata", f"commits/{batch}", f"offsets/{batch}", f"offsets/{batch - 1}"]
        for number in self._look.folders("state"):
            for folder in (f"state/{number}/_metadata", f"state/{number}/_metadata/v2"):
                logs += [f"{folder}/{name}" for name in self._look.files(folder)]
        for name in logs:
            if name not in self._verdicts and self._look.stat(name) is not None:
                self._verdicts[name] = judge(self._directory.plain, name)
        return [self._verdicts[name] for name in logs if self._is_faulty(name)]

    def _gone(self, name: str) -> str:
        """That a file is not there, and what is left of it."""
        folder, _, plain = name.rpartition("/")
        left = self._look.leftovers(folder)
        temporary = next((n for n in left if n.startswith(f".{plain}.") and n.endswith(".tmp")), None)
        if temporary:
            return f"{NOT_THERE}, but its temporary file {temporary} is: it was never renamed"
        if f".{plain}.crc" in left:
            return f"{NOT_THERE}, but its checksum is: something other than Spark removed it"
        return NOT_THERE

    def _report_missing(self) -> None:
        found, newest = self._found, self._found.newest_committed
        oldest = found.whole[0] if found.whole else -1
        for what, batches in self._missing.items():
            if newest in batches:
                self._fault("damage", what.name, what.why, missing=what.missing, batches=batches)
            elif what.missing and max(batches) < oldest:
                # Spark's own clean-up, which keeps the logs for longer than the state.
                found.cleaned = tuple(sorted({*found.cleaned, *batches}))
            else:
                means = "these batches can't be gone back to; a restart does not need them"
                found.faults.append(Fault("warning", what.name, what.why, means, tuple(sorted(batches))))

    def _warn(self, name: str, means: str) -> None:
        self._found.faults.append(Fault("warning", name, self._gone(name), means))

    def _fault(self, severity: Severity, name: str, what: str, *, missing: bool, batches: Iterable[int] = ()) -> None:
        self._found.faults.append(Fault(severity, name, what, meaning(name, missing=missing), tuple(sorted(batches))))


def _why(verdict: Verdict) -> str:
    if verdict.fault is not None:
        return verdict.fault
    return f"{verdict.beside} does not match it, though it is intact by another checksum"


def _gaps(batches: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    for before, after in pairwise(batches):
        if after > before + 1:
            yield before + 1, after - 1


class _Remembering(Directory):
    """A directory whose small logs are read once, however many batches ask for them."""

    def __init__(self, plain: Directory) -> None:
        self.plain = plain
        self.url = plain.url
        self.costly = plain.costly
        self._read: dict[str, tuple[bytes, FileStat]] = {}

    def look(self, folder: str = "") -> Look:
        return self.plain.look(folder)

    def folders(self, folder: str = "") -> list[str]:
        return self.plain.folders(folder)

    def read(self, name: str) -> tuple[bytes, FileStat]:
        if name not in self._read:
            data = self.plain.read(name)
            if name.startswith("state/") and "/_" not in name:
                return data
            self._read[name] = data
        return self._read[name]

    def stream(self, name: str) -> tuple[FileStat, Iterator[bytes]]:
        return self.plain.stream(name)
