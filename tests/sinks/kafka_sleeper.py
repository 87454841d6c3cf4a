"""A driver that stops itself (SIGSTOP) in the middle of a Kafka sink's work; when it wakes it goes on, and tries once
more. Prints what came of either.

    python kafka_sleeper.py BOOTSTRAP TOPIC FOLDER fence|prepared|produced
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from holdfast.decide.chain import NOTHING
from holdfast.errors import HoldfastError
from holdfast.sinks import kafka_client
from holdfast.sinks.kafka import Kafka
from holdfast.testing.sinks import holder, stage, step, words


def sleep() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class Sleeping(Producer):
    """Sleeps once, when all that belongs to a transaction is in the brokers' logs and only the commit is left."""

    awake = False

    def commit_transaction(self, timeout: float = -1) -> None:
        if not Sleeping.awake:
            Sleeping.awake = True
            assert self.flush(30) == 0
            sleep()
        super().commit_transaction(timeout)


def attempt(act: Callable[[], object]) -> None:
    try:
        act()
        print("went through", flush=True)
    except HoldfastError as error:
        print(type(error).__name__, flush=True)


def main(bootstrap: str, topic: str, folder: Path, where: str) -> None:
    sink, rows = Kafka(bootstrap, topic), stage(folder, words(7, 8, 9))
    if where == "fence":
        kafka_client.Producer = Sleeping  # type: ignore[misc]
        attempt(lambda: sink.fence(holder(0), NOTHING))
        attempt(lambda: sink.fence(holder(0), NOTHING))
        return
    kafka_client.Producer = Sleeping  # type: ignore[misc]
    Sleeping.awake = True
    sink.fence(holder(0), NOTHING)
    token = sink.prepare(step(0), rows)
    if where == "prepared":
        sleep()
    Sleeping.awake = where == "prepared"
    attempt(lambda: sink.commit(step(0), token, rows))
    attempt(lambda: sink.commit(step(0), token, rows))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
