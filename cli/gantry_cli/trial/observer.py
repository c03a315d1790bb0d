"""Watches one broker group during a trial: the newest reading, who was master, and what changed.

Two sources feed it. The watch stream misses no epoch and so fills the history of masters; readings
a few times a second carry the offsets that a view shows. While no controller answers, the last
reading stays and `stale_s` grows; nothing is invented.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

from gantry_cli.trial.history import MasterHistory
from gantry_cli.trial.narrate import changes, settled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType
    from typing import Self

    from gantry_protocol.admin import GroupView, QuorumView

    from gantry_cli.admin import AdminClient

READING_INTERVAL_S = 0.2
LOOK_UP_INTERVAL_S = 0.5


class Observer:
    """Follows the group `name`, from entering the context to leaving it.

    Args:
        admin: an open client of the controllers.
        name: the group.
        tell: gets a sentence for every change.
        pods: the names of pods by their uid, which is what members are registered with.
    """

    def __init__(
        self,
        admin: AdminClient,
        name: str,
        tell: Callable[[str], None],
        pods: Callable[[], Awaitable[Mapping[str, str]]],
    ) -> None:
        self.group: GroupView | None = None
        self.quorum: QuorumView | None = None
        self.history = MasterHistory()
        self.last_trouble = ""  # the newest reason why the controllers told nothing
        self._admin = admin
        self._name = name
        self._tell = tell
        self._pods = pods
        self._pod_names: dict[str, str] = {}
        self._look_up_at_s = 0.0
        self._read_at_s = time.monotonic()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._watch())]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def stale_s(self) -> float:
        """Seconds since the controllers last answered."""
        return time.monotonic() - self._read_at_s

    async def until_settled(self, patience_s: float) -> bool:
        """Wait until the group has a master and everybody is in sync; False when it took longer."""
        return await self.until(lambda: settled(self.group), patience_s)

    @property
    def master_pod(self) -> str | None:
        """The pod of the master; None while there is none, or its pod is unknown."""
        if self.group is None:
            return None
        for member in self.group.members:
            if member.broker_id == self.group.master_broker_id:
                return member.pod_name
        return None

    def raise_if_broken(self) -> None:
        """Raise what ended one of the observer's tasks, if one has ended with an error."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def until(self, condition: Callable[[], bool], patience_s: float) -> bool:
        """Wait for a condition on what is observed; it is looked at after every reading."""
        try:
            async with asyncio.timeout(patience_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _read(self) -> None:
        while True:
            try:
                groups = await self._admin.groups()
                self.quorum = await self._admin.leader() or self.quorum
            except GantryError as error:  # shown by its age
                self.last_trouble = str(error)
                groups = []
            else:
                if all(group.name != self._name for group in groups):
                    self.last_trouble = f"The controllers know no group {self._name!r}."
            for group in groups:
                if group.name == self._name:
                    self._take(await self._with_pod_names(group))
            await asyncio.sleep(READING_INTERVAL_S)

    async def _with_pod_names(self, group: GroupView) -> GroupView:
        """`group` with the pods of its members; unknown ones are looked up now and then."""
        uids = {member.pod_uid for member in group.members if member.pod_uid}
        now_s = time.monotonic()
        if uids - self._pod_names.keys() and now_s >= self._look_up_at_s:
            self._look_up_at_s = now_s + LOOK_UP_INTERVAL_S
            self._pod_names.update(await self._pods())
        members = [
            member.model_copy(update={"pod_name": self._pod_names.get(member.pod_uid or "")})
            for member in group.members
        ]
        return group.model_copy(update={"members": members})

    def _take(self, group: GroupView) -> None:
        if self.group is not None and group.master_epoch < self.group.master_epoch:
            return  # read before an event that was seen already
        before, self.group = self.group, group
        self._read_at_s = time.monotonic()
        self.history.enter(group.master_epoch, group.master_broker_id)
        for sentence in changes(before, group):
            self._tell(sentence)
        self._changed.set()

    async def _watch(self) -> None:
        async with aclosing(self._admin.watch()) as events:
            async for event in events:
                if event.group == self._name:
                    self.history.enter(event.master_epoch, event.master_broker_id)
