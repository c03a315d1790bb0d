"""Committed metadata as a stream of its own: how long nothing could be committed.

A topic is changed again and again; each change is one entry of the controllers' log, and the gaps
between them are what a controllers' failover costs. What it refuses: to take a change for committed
that was not answered.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from gantry_chaos.history.recording import commit
from gantry_cli.client.gaps import AckTimes
from gantry_cli.client.topics import create_topic
from gantry_protocol.errors import GantryError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from gantry_chaos.history.lines import Line
    from gantry_cli.client.session import Session

PAUSE_S = 0.01
CLIENT = "commits"  # in a history


class Commits:
    """Changes `topic` all the time, from entering the context to leaving it.

    Args:
        client: where the name service and the brokers are asked.
        topic: what is changed; nothing is sent to it.
        keep_times: commits whose times are remembered; None: all.
        write: gets every change as lines of a history; None: nobody wants one.
    """

    def __init__(
        self,
        client: Session,
        topic: str,
        *,
        keep_times: int | None = None,
        write: Callable[[Line], None] | None = None,
    ) -> None:
        self._write = write
        self.times = AckTimes(keep=keep_times)
        self.last_trouble = ""  # the newest reason why a change was not committed
        self._client = client
        self._topic = topic
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._commit_forever())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def raise_if_broken(self) -> None:
        """Raise what ended the stream, if it has ended with an error."""
        task = self._task
        if task is not None and task.done() and not task.cancelled() and task.exception():
            task.result()

    async def _commit_forever(self) -> None:
        number = 0
        while True:
            number += 1
            called_ms = now_ms()
            try:
                await create_topic(self._client, self._topic, queues=1 + number % 2, cluster=None)
            except GantryError as error:
                self.last_trouble = str(error)
                self._record(number, called_ms, answered=False)
            else:
                self.times.add(time.monotonic())
                self._record(number, called_ms, answered=True)
            await asyncio.sleep(PAUSE_S)

    def _record(self, number: int, called_ms: int, *, answered: bool) -> None:
        if self._write is not None:
            for line in commit(CLIENT, self._topic, number, called_ms, now_ms(), answered=answered):
                self._write(line)


def now_ms() -> int:
    """Milliseconds of CLOCK_MONOTONIC, as histories have them."""
    return time.monotonic_ns() // 1_000_000
