"""Walking the world: every pause, every crash, every late create of one actor, against every other."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.testing.faults import Crash
from protocol import world
from protocol.stepping import Actor

Origin = tuple[world.MemoryStore, world.Ghost]


@dataclass(frozen=True)
class Violation:
    what: str
    schedule: str
    traces: dict[str, list[str]]

    def __str__(self) -> str:
        lines = [self.what, f"  schedule: {self.schedule}"]
        for name, trace in self.traces.items():
            lines += [f"  {name}:", *(f"    {number:3d} {step}" for number, step in enumerate(trace))]
        return "\n".join(lines)


class Run:
    """One schedule in a fresh copy of the world."""

    def __init__(self, schedule: str, origin: Origin = (world.STORE, world.GHOST)) -> None:
        self.schedule = schedule
        self.store = world.clone(origin[0])
        self.ghost = world.fresh_ghost(origin[1])
        world.copy_target(self.ghost)
        self.actors: list[Actor] = []
        self.ghost.has_sinks = "capture" not in schedule

    def start(self, name: str, late_at: int | None = None) -> Actor:
        act = world.ACTS[name]
        actor = Actor(name, lambda view: act(view, self.ghost), self.store, late_at)
        self.actors.append(actor)
        return actor

    def look(self, *, final: bool = False) -> Violation | None:
        found = world.final_violations(self.store, self.ghost) if final else world.violations(self.store, self.ghost)
        for what in found:
            return Violation(what, self.schedule, {a.name: a.store.trace for a in self.actors})
        for actor in self.actors:
            if actor.finished and actor.error is not None and not isinstance(actor.error, Crash):
                what = f"{actor.name} failed: {actor.error!r}"
                return Violation(what, self.schedule, {a.name: a.store.trace for a in self.actors})
        return None

    def close(self) -> None:
        for actor in self.actors:
            if not actor.finished:
                actor.crash()
        world.COPIES.pop(id(self.ghost), None)


def paused(
    first: str, second: str, at: int, *, crash: bool, more: int = 0, origin: Origin = (world.STORE, world.GHOST)
) -> tuple[Violation | None, bool]:
    """`first` runs to an operation, `second` runs to its end, then `first` goes on, or only a few operations more."""
    run = Run(f"{first} to {at}, {second}, {first} {'crashed' if crash else 'resumed'}", origin)
    try:
        a = run.start(first)
        a.step(at)
        over = a.finished
        if found := run.look():
            return found, over
        b = run.start(second)
        b.finish()
        if found := run.look():
            return found, over
        if more:
            a.step(more)
        a.crash() if crash else a.finish()
        return run.look(final=True), over
    finally:
        run.close()


def late(first: str, second: str, at: int) -> tuple[Violation | None, bool]:
    """The create at an operation of `first` loses its reply and lands only after `second` is done."""
    run = Run(f"{first} with a late create at {at}, {second}, landing")
    try:
        a = run.start(first, late_at=at)
        a.finish()
        over = a.gate.done <= at
        if not a.store.late:
            return None, over
        if found := run.look():
            return found, over
        b = run.start(second)
        b.finish()
        if found := run.look():
            return found, over
        a.store.land()
        return run.look(final=True), over
    finally:
        run.close()


def every_pause(
    first: str, second: str, start: int = 0, stride: int = 1, origin: Origin = (world.STORE, world.GHOST)
) -> Iterator[Violation | None]:
    for crash in (False, True):
        at, over = start, False
        while not over:
            found, over = paused(first, second, at, crash=crash, origin=origin)
            at += stride
            yield found


def every_late(first: str, second: str, start: int = 0, stride: int = 1) -> Iterator[Violation | None]:
    at, over = start, False
    while not over:
        found, over = late(first, second, at)
        at += stride
        yield found


def shuffled(names: tuple[str, ...], seed: int) -> Violation | None:
    """Several actors in an order drawn from a seed: each goes a few operations, some crash, some creates come late."""
    draw = random.Random(f"{names}/{seed}")
    run = Run(f"{' | '.join(names)}, seed {seed}")
    try:
        actors = [run.start(name, draw.randrange(40) if draw.random() < 0.2 else None) for name in names]
        alive = list(actors)
        while alive:
            actor = draw.choice(alive)
            if draw.random() < 0.01:
                actor.crash()
            else:
                actor.step(draw.choice((1, 1, 1, 2, 3, 8)))
            if draw.random() < 0.1:
                draw.choice(actors).store.land()
            if actor.finished:
                alive.remove(actor)
            if found := run.look():
                return found
        for actor in actors:
            actor.store.land()
        return run.look(final=True)
    finally:
        run.close()
