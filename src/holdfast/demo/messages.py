"""What the play and a driver tell each other: a JSON object a line, each of one of these kinds."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = [
    "Began",
    "Checkpointed",
    "Command",
    "Committed",
    "Failed",
    "Held",
    "News",
    "Progressed",
    "Ready",
    "Rewind",
    "Rewound",
    "RunPlainly",
    "Saved",
    "Savepoint",
    "Start",
    "Stop",
    "Stopped",
    "decode_command",
    "decode_news",
    "encode",
]


class _Message(msgspec.Struct, tag=True):
    pass


# ---- to the driver ----


class Start(_Message):
    """Start the pipeline. At the step `hold` of the epoch `hold_at` it stands still, to be killed there."""

    hold: str = ""
    hold_at: int = -1


class Savepoint(_Message):
    name: str


class Stop(_Message):
    """Stop after the epoch under way."""


class Rewind(_Message):
    to: str


class RunPlainly(_Message):
    """Run the same query over the same orders once more, in plain Spark, from the beginning to the end."""


Command: TypeAlias = Start | Savepoint | Stop | Rewind | RunPlainly


# ---- from the driver ----


class Ready(_Message):
    """Spark runs, and commands are taken."""

    spark: str


class Began(_Message):
    """The pipeline runs, from the `state` that `Recovery` names; so many epochs were run again before."""

    generation: int
    state: str
    epoch: int
    checkpoint: str
    replays: int


class Committed(_Message):
    """Every sink has the rows of an epoch."""

    epoch: int
    rows: int
    seconds: float


class Progressed(_Message):
    """What Spark says of a batch that is over."""

    epoch: int
    orders: int
    orders_per_second: float
    state_rows: int
    state_bytes: int


class Checkpointed(_Message):
    slot: str
    epoch: int
    bytes_new: int
    bytes: int
    seconds: float


class Saved(_Message):
    name: str
    slot: str
    epoch: int


class Held(_Message):
    """It stands still in the middle of this epoch."""

    epoch: int


class Stopped(_Message):
    pass


class Rewound(_Message):
    epoch: int
    generation: int
    seconds: float


class Failed(_Message):
    why: str


News: TypeAlias = Ready | Began | Committed | Progressed | Checkpointed | Saved | Held | Stopped | Rewound | Failed

_encoder = msgspec.json.Encoder()
_commands: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_news: msgspec.json.Decoder[News] = msgspec.json.Decoder(News)


def encode(message: Command | News) -> str:
    return _encoder.encode(message).decode() + "\n"


def decode_command(line: str) -> Command:
    return _commands.decode(line)


def decode_news(line: str) -> News:
    return _news.decode(line)
