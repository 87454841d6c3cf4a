"""The sidecar of a whole cluster: it captures, looks after and watches over all that one holdfast.toml names.

Captures, looks, upkeep and telling run in threads of their own: whichever hangs or fails, the others go on. This thread
only judges what they have found out, once a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.config import Config, CopyTable
from holdfast.decide.alerts import Facts, Rules, judge, stand
from holdfast.decide.schedule import Schedule, ScheduleState, due
from holdfast.errors import Damage, VerbFailed
from holdfast.gc import Removed
from holdfast.handles import Repository
from holdfast.sidecar.events import AlertChanged, Done, Listener, NotYetOurs, Undone
from holdfast.sidecar.fleets import Fleet, Member, fleets_of, members_of
from holdfast.sidecar.known import Known
from holdfast.sidecar.memory import Damaged, Memory
from holdfast.sidecar.outside import Halted, Outside
from holdfast.sidecar.receivers import receiver_of
from holdfast.sidecar.telling import Teller, now_ms
from holdfast.sidecar.upkeep import check, look, prune, said, ways_back
from holdfast.store import RetryPolicy
from holdfast.text import amount, size

__all__ = ["Sidecar", "state_file"]

TICK = 0.5
LOOKERS, KEEPERS, MOVERS = 4, 2, 2
_Work: TypeAlias = Callable[[Member], bool]
"""Does one thing for a pipeline, and says whether there was something to do."""

Asker: TypeAlias = Callable[[str, str], Sequence[Mapping[str, Any]]]
"""Given a pipeline and its MODULE:ATTR: the reach of each of its checkpoints, as `Reach.document` has it."""

CHECK_AGAIN_MS = 3_600_000
"""What is damaged is checked again at least so often: somebody may have mended it."""
FIRST_RETRY, LAST_RETRY = 30.0, 3600.0
NOT_THERE_YET = 60.0
"""A pipeline without a checkpoint is looked after once it has one."""


def state_file(config: Config, file: Path) -> Path:
    """Where the sidecar of a file keeps what it must not forget."""
    return Path(config.state) if config.state else file.absolute().with_suffix(".state.json")


class Sidecar:
    """Runs all that a file asks for. Make a new one to take up a changed file: nothing is lost in between."""

    def __init__(
        self,
        config: Config,
        repository: Repository,
        file: Path,
        *,
        tell: Listener,
        retry: RetryPolicy | None = None,
        ask: Asker | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._config = config
        self._repository = repository
        self._tell = tell
        self._clock = clock
        self._halt = threading.Event()
        self._outside = Outside(repository, file.absolute().parent, self._halt)
        self._ask = ask or partial(self._outside.reach, config.reach)
        self._memory = Memory(state_file(config, file))
        self._known = Known()
        self._fleets: list[Fleet] = fleets_of(config, repository, retry, tell)
        self._tellers: list[Teller] = []
        self._running: dict[tuple[str, str], Future[None]] = {}
        self._not_before: dict[tuple[str, str], float] = {}
        self._problem = ""

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set. Raises StateUnusable at once.

        Captures and prunes under way are finished first; the rest is cut off, and done another time.
        """
        if not self._memory.acquire():
            self._tell("", NotYetOurs(str(self._memory.path)))
        crews = ThreadPoolExecutor(max(1, len(self._fleets)), thread_name_prefix="holdfast-fleet")
        lookers = ThreadPoolExecutor(LOOKERS, thread_name_prefix="holdfast-look")
        keepers = ThreadPoolExecutor(KEEPERS, thread_name_prefix="holdfast-upkeep")
        movers = ThreadPoolExecutor(MOVERS, thread_name_prefix="holdfast-move")
        try:
            with crews, lookers, keepers, movers:
                captures = [crews.submit(fleet.watches.run, self._halt) for fleet in self._fleets]
                try:
                    while not stop.is_set():
                        for ended in (each for each in captures if each.done()):
                            ended.result()  # never by itself: what ended it ends all, and whoever started it sees
                        if self._memory.acquire():
                            self._begin_telling()
                            self.tick({"look": lookers, "copy": movers, "drill": movers}, keepers)
                        stop.wait(TICK)
                finally:
                    self._halt.set()
                    for pool in (lookers, keepers, movers):
                        pool.shutdown(wait=False, cancel_futures=True)
                    for teller in self._tellers:
                        teller.stop()
        finally:
            for teller in self._tellers:
                teller.join()
            self._memory.close()

    def _begin_telling(self) -> None:
        if self._tellers:
            return
        receivers, repeat = self._config.alerts.to, self._config.alerts.repeat
        self._memory.keep_receivers(set(receivers))
        for name, table in receivers.items():
            teller = Teller(
                name,
                receiver_of(table),
                self._memory,
                repository=self._repository.url,
                repeat_ms=repeat.ms if repeat else None,
                tell=self._tell,
            )
            self._tellers.append(teller)
            teller.start()

    # ---- once in a while ----

    def tick(self, pools: Mapping[str, ThreadPoolExecutor], keepers: ThreadPoolExecutor) -> None:
        """Begin what is due, in the pool of its kind if that has one, and judge what is known."""
        # Asked before the members are gathered: found in between, they would be missing and pass for given up.
        is_complete = all(fleet.watches.found is not None for fleet in self._fleets)
        members = members_of(self._config, self._fleets)
        for member in members.values():
            for kind, work, every_ms in self._work(member):
                key = (kind, member.name)
                if key not in self._running and self._is_due(kind, member.name, every_ms):
                    pool = pools.get(kind.partition(" ")[0], keepers)
                    self._running[key] = pool.submit(self._carry_out, kind, member, work, every_ms)
        for key, future in [*self._running.items()]:
            if future.done():
                del self._running[key]
                future.result()
        self._judge(members, complete=is_complete)

    def _work(self, member: Member) -> Iterator[tuple[str, _Work, int]]:
        yield "look", self._look, self._config.alerts.look.ms
        if self._config.check is not None:
            yield "check", self._check, self._check_every(member.name, self._config.check.every.ms)
        if member.keep is not None:
            yield "prune", self._prune, member.keep.every.ms
        for name, table in self._config.copies.items():
            yield f"copy to {name}", partial(self._copy, name, table), table.every.ms
        if self._config.drill is not None:
            yield "drill", self._drill, self._config.drill.every.ms
        if member.code is not None and {"way-back", "retention"} & self._config.alerts.rules(None).asked():
            yield "way back", self._reach, self._config.reach.every.ms

    def _is_waiting(self, member: Member) -> bool:
        """Whether a copy or a drill is still to be made: one that has failed is due at once after a restart."""
        reads = [(kind, every_ms) for kind, _, every_ms in self._work(member) if kind.startswith(("copy", "drill"))]
        tried = self._known.has_tried
        return any(self._is_due(kind, member.name, ms) and not tried(kind, member.name) for kind, ms in reads)

    def _hits(self, member: Member) -> list[str]:
        """What was run into by that which is still asked for: one that fails for another reason has proven nothing."""
        hits = [self._memory.hit(kind, member.name) for kind, _, _ in self._work(member)]
        return [hit for hit in hits if hit is not None]

    def _check_every(self, pipeline: str, every_ms: int) -> int:
        damaged = self._memory.damaged(pipeline)
        return min(every_ms, CHECK_AGAIN_MS) if damaged and damaged.what else every_ms

    def _is_due(self, kind: str, pipeline: str, every_ms: int) -> bool:
        if time.monotonic() < self._not_before.get((kind, pipeline), float("-inf")):
            return False
        last_ms = self._memory.last_run(kind, pipeline)
        if last_ms is None:
            return True
        return due(Schedule(every_ms=every_ms), ScheduleState(0, last_ms * 1_000_000), self._clock() * 1_000_000)

    def _carry_out(self, kind: str, member: Member, work: _Work, every_ms: int) -> None:
        try:
            was_done = work(member)
        except Halted:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and tried again
            if isinstance(error, VerbFailed) and error.is_damage:
                self._memory.ran_into(kind, member.name, said(error))
            failing = self._known.did(kind, member.name, self._clock(), said(error))
            pause = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(failing - 1, 10))
            self._tell(member.name, Undone(kind, said(error), pause))
        else:
            if was_done and kind != "look":
                self._memory.ran_into(kind, member.name, None)
                self._known.did(kind, member.name, self._clock())
            pause = every_ms / 1000 if was_done else min(every_ms / 1000, NOT_THERE_YET)
            if self._memory.last_run(kind, member.name) is not None:
                pause = 0  # the file decides, before a restart and after it
        self._not_before[kind, member.name] = time.monotonic() + pause

    # ---- what is done ----

    def _look(self, member: Member) -> bool:
        """A look that fails is no failed upkeep: the checkpoint grows older meanwhile, and that is told."""
        try:
            newest = look(self._repository.pipeline(member.name))
        except Exception as error:  # noqa: BLE001 - whatever it is, the newest checkpoint could not be seen
            is_damage = isinstance(error, Damage)
            self._known.could_not_see(member.name, said(error), self._clock(), is_damage=is_damage)
        else:
            self._known.saw(member.name, newest, self._clock())
        return True

    def _check(self, member: Member) -> bool:
        stored, name = self._repository.pipeline(member.name), member.name
        if self._config.check is None or not stored.exists():
            return False
        damaged = check(stored, self._config.check.read_data, self._memory.damaged(name), self._halt)
        self._memory.ran("check", name, self._clock(), damaged)
        self._tell(name, Done("check", _found(damaged), {"damage": damaged.what, "checkpoints": damaged.slots}))
        return True

    def _prune(self, member: Member) -> bool:
        stored = self._repository.pipeline(member.name)
        if member.keep is None or not stored.exists():
            return False
        removed = prune(stored, member.keep.policy)
        self._memory.ran("prune", member.name, self._clock())
        if removed is not None and removed.checkpoints:
            self._tell(member.name, Done("prune", _removed(removed), {"checkpoints": removed.checkpoints}))
        return True

    def _copy(self, name: str, table: CopyTable, member: Member) -> bool:
        if not self._repository.pipeline(member.name).exists():
            return False
        copied = self._outside.copy(table, member.name)
        self._memory.ran(f"copy to {name}", member.name, self._clock())
        if copied["objects"] or copied["removed"]:
            moved = f"{amount(copied['checkpoints'], 'checkpoint')}, {size(copied['bytes'])}"
            self._tell(member.name, Done(f"copy to {name}", moved, copied))
        return True

    def _drill(self, member: Member) -> bool:
        stored, table = self._repository.pipeline(member.name), self._config.drill
        if table is None or not stored.exists() or stored.latest() is None:
            return False
        drilled = self._outside.drill(table, member.name, member.code if table.start else None)
        self._memory.ran("drill", member.name, self._clock())
        found = f"good: {drilled['slot']}, epoch {drilled['epoch']}, {size(drilled['bytes'])}"
        self._tell(member.name, Done("drill", found, drilled))
        return True

    def _reach(self, member: Member) -> bool:
        if member.code is None or not self._repository.pipeline(member.name).exists():
            return False
        ways = ways_back(self._ask(member.name, member.code))
        self._known.can_go_back(member.name, ways, self._clock())
        blocked = [way.name for way in ways if way.stuck or way.gone]
        found = f"{', '.join(blocked)} can't be gone back to" if blocked else f"open to all {len(ways)} that were asked"
        self._tell(member.name, Done("way back", found, {"asked": [w.name for w in ways], "blocked": blocked}))
        return True

    # ---- what holds ----

    def _judge(self, members: dict[str, Member], *, complete: bool) -> None:
        now, is_checked = self._clock(), self._config.check is not None
        asked = []
        for member in members.values():
            damaged = self._memory.damaged(member.name) if is_checked else None
            seen = self._memory.first_seen(member.name, now)
            # Nothing found means something only once all that looks for damage has looked.
            waiting = (is_checked and damaged is None) or self._is_waiting(member)
            found = [*(damaged.what if damaged else []), *self._hits(member)]
            facts = self._known.facts(member, found, is_waiting=waiting, first_seen_ms=seen, now_ms=now)
            asked.append((facts, self._config.alerts.rules(member.checkpoint_age)))
        scans = Rules(capture_failures=self._config.alerts.capture_failures or None, damage=False, way_back=False)
        roots = [fleet for fleet in self._fleets if fleet.root is not None]
        asked += [(Facts(f"roots.{fleet.root}", now, capture=fleet.scans), scans) for fleet in roots]
        before = self._memory.standing()
        after = stand(before, judge(asked, now, complete=complete), now)
        for key in before.keys() - after.keys():
            self._tell(before[key].alert.pipeline, AlertChanged("resolved", before[key].alert))
        for key in after.keys() - before.keys():
            self._tell(after[key].alert.pipeline, AlertChanged("firing", after[key].alert))
        changed = before.keys() != after.keys()
        self._memory.keep_standing(after)
        if changed:
            for teller in self._tellers:
                teller.poke()
        if self._memory.problem != self._problem:
            self._problem = self._memory.problem
            if self._problem:
                self._tell("", Undone("state", self._problem, TICK))


def _found(damaged: Damaged) -> str:
    if not damaged.what:
        return "good"
    hit = f"; can't be restored: {', '.join(damaged.slots)}" if damaged.slots else ""
    return f"damaged: {damaged.what[0]}{f' and {len(damaged.what) - 1} more' if len(damaged.what) > 1 else ''}{hit}"


def _removed(removed: Removed) -> str:
    count = len(removed.checkpoints)
    return f"removed {count} checkpoint{'' if count == 1 else 's'}, {len(removed.objects)} objects"
