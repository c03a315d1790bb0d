"""One soak: load, commits and observer together, and the account of them.

The rule protected here: nothing counts as lost before sending has stopped and the consumer has had
its time. What it refuses: to go quiet when a part of it broke; that is an error of the soak, and
never a clean outcome.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

from gantry_lab.soak.views import (
    Count,
    MastershipView,
    SoakOutcome,
    SoakState,
    group_of,
    outcome_of,
    quorum_of,
)

if TYPE_CHECKING:
    from typing import Self

    from gantry_cli.client.gaps import AckTimes
    from gantry_cli.trial.load import Load
    from gantry_cli.trial.observer import Observer

    from gantry_lab.soak.commits import Commits
    from gantry_lab.soak.recording import Recording
    from gantry_lab.soak.witness import Witness

FLOWING_S = 1.0


class Soak:
    """A load that can be paused, counted and resumed.

    Use as an async context manager around parts that are open: it starts the load.

    Args:
        load: what sends and consumes.
        commits: the stream of topic changes; None: there is none.
        observer: what watches the group; None: nobody does.
        recording: the history of all this; None: nobody wants one.
    """

    def __init__(
        self,
        load: Load,
        *,
        commits: Commits | None = None,
        observer: Observer | None = None,
        recording: Recording | None = None,
    ) -> None:
        self.recording = recording
        self.load = load
        self.commits = commits
        self.observer = observer
        self._starting: asyncio.Task[None] | None = None
        self._finishing = False

    async def __aenter__(self) -> Self:
        self._starting = asyncio.create_task(self.load.start())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._starting is not None
        self._starting.cancel()
        await asyncio.gather(self._starting, return_exceptions=True)

    @property
    def error(self) -> str | None:
        """The error that broke a lane, the consumer or the observer; None: nothing did."""
        try:
            starting = self._starting
            if starting is not None and starting.done() and not starting.cancelled():
                starting.result()
            for part in (self.load, self.commits, self.observer, self._witness):
                if part is not None:
                    part.raise_if_broken()
        except Exception as error:  # noqa: BLE001 - told, in the state and at the end
            return _words(error)
        return None

    @property
    def _witness(self) -> Witness | None:
        return None if self.recording is None else self.recording.witness

    @property
    def longest_gap_ms(self) -> float | None:
        """The longest gap between two acknowledgements so far; None: there were no two."""
        longest = self.load.acks.longest_ever
        return None if longest is None else longest.ms

    def times(self, stream: str) -> AckTimes | None:
        """The acknowledgements of `writes` or of `commits`; None: there is no such stream."""
        streams = {"writes": self.load.acks}
        if self.commits is not None:
            streams["commits"] = self.commits.times
        return streams.get(stream)

    def state(self) -> SoakState:
        """Everything at this moment."""
        load, observer = self.load, self.observer
        now_s = time.monotonic()
        return SoakState(
            now_s=now_s,
            sending=load.sending,
            started=load.started,
            acknowledged=load.ledger.acknowledged,
            consumed=load.ledger.consumed,
            outstanding=load.ledger.outstanding(),
            last_ack_s=load.acks.last_s,
            flowing=load.acks.flowing(now_s, FLOWING_S),
            commits_flowing=(
                self.commits is not None and self.commits.times.flowing(now_s, FLOWING_S)
            ),
            illegal_offsets=load.illegal_offsets,
            last_trouble=load.last_trouble,
            error=self.error,
            group=group_of(observer.group, observer.stale_s) if observer is not None else None,
            quorum=quorum_of(observer.quorum) if observer is not None else None,
            masterships=(
                [
                    MastershipView(mastership.epoch, mastership.broker_id)
                    for mastership in observer.history.masterships
                ]
                if observer is not None
                else []
            ),
            conflicts=self._conflicts,
        )

    async def pause(self, patience_s: float) -> Count:
        """Start no further message, wait for what is under way and to be consumed, and count.

        Waits at most `patience_s` for both. Commits go on: they are no messages.
        """
        deadline = time.monotonic() + patience_s
        await self.load.finish_sending(patience_s)
        await self.load.finish_consuming(max(0.0, deadline - time.monotonic()))
        drained = None
        if self.recording is not None:
            drained = await self.load.read_to_the_end(max(0.0, deadline - time.monotonic()))
        verdict = self.load.ledger.verdict()
        return Count(verdict, verdict.clean, self.load.ledger.outstanding(), drained)

    def resume(self) -> None:
        """Send again, unless the last count is under way."""
        if not self._finishing:
            self.load.resume_sending()

    async def finish(self, patience_s: float) -> SoakOutcome:
        """Pause for the last time; the account of the whole soak."""
        self._finishing = True
        count = await self.pause(patience_s)
        return outcome_of(
            count,
            illegal_offsets=self.load.illegal_offsets,
            conflicts=self._conflicts,
            longest_gap_ms=self.longest_gap_ms,
            last_trouble=self.load.last_trouble,
            error=self.error,
            unseen=self._unseen,
        )

    @property
    def _unseen(self) -> str | None:
        """Why the group that should be watched was never seen; None: it was, or none should be."""
        if self.observer is None or self.observer.group is not None:
            return None
        return self.observer.last_trouble or "The controllers did not answer in time."

    @property
    def _conflicts(self) -> list[int]:
        return self.observer.history.conflicts if self.observer is not None else []


def _words(error: BaseException) -> str:
    """The innermost error in one sentence; a group's first one stands for all."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, GantryError) else f"{type(error).__name__}: {error}"
