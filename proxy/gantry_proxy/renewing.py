"""Messages that clients work on for longer than an invisible time: they are renewed here.

A push consumer asks for it (``auto_renew``). What is renewed is forgotten when this process ends:
the message comes again when its time is over, and the handle that the client has stays good until
then, at any proxy, since a renewal does not change it. A client that is gone is renewed no more.

Bounds: ``HELD_MAX`` messages; each for ``RENEWED_FOR_S`` at most.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.pop import ChangeInvisibleTimeRequestHeader

from gantry_proxy.core.refusals import CallRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gantry_proxy.calls import Masters
    from gantry_proxy.core.handles import Handle
    from gantry_proxy.rpc import ClientKey

RENEWED_MS = 60_000  # upstream's defaultInvisibleTimeMills
RENEW_AFTER_S = 30.0
RENEWED_FOR_S = 3 * 3_600.0  # upstream's renewMaxTimeMillis
AGAIN_AFTER_S = 3.0  # where nobody answered
LOOK_EVERY_S = 1.0
HELD_MAX = 50_000
AT_ONCE = 64
_OVER = (
    ResponseCode.NO_MESSAGE,  # done, or handed out again
    ResponseCode.NO_PERMISSION,  # its user may no longer have it
)


class Renewal(msgspec.Struct, frozen=True):
    """A message that a client works on; ``behalf`` says to brokers whose it is."""

    client: ClientKey
    group: str
    topic: str
    handle: Handle
    behalf: dict[str, str] = {}


class Prolonged(msgspec.Struct):
    """A message that is renewed, next at ``due_s``, and not after ``end_s``; loop times."""

    renewal: Renewal
    due_s: float
    end_s: float


class Renewals:
    """See the module.

    Args:
        masters: the broker groups.
        is_there: whether a client is connected.

    Attributes:
        renewed: how often a message's time was prolonged.
        left_out: messages that were not held, for want of room.
    """

    def __init__(self, masters: Masters, is_there: Callable[[ClientKey], bool]) -> None:
        self.renewed = self.left_out = 0
        self._masters = masters
        self._is_there = is_there
        self._held: dict[
            tuple[str, int, int, str], Prolonged
        ] = {}  # in the order in which they came

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, renewals: Iterable[Renewal]) -> None:
        """Renew these from now on."""
        now_s = asyncio.get_running_loop().time()
        for renewal in renewals:
            if len(self._held) >= HELD_MAX:
                self.left_out += 1
                continue
            self._held[_key(renewal.handle)] = Prolonged(
                renewal, now_s + RENEW_AFTER_S, now_s + RENEWED_FOR_S
            )

    def drop(self, handle: Handle) -> None:
        """Something else becomes of this message."""
        self._held.pop(_key(handle), None)

    async def run(self) -> None:
        """Renew, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now_s = asyncio.get_running_loop().time()
            due = [item for item in self._held.values() if item.due_s <= now_s]
            for first in range(0, len(due), AT_ONCE):
                await asyncio.gather(
                    *(self._renew(item, now_s) for item in due[first : first + AT_ONCE])
                )

    async def _renew(self, item: Prolonged, now_s: float) -> None:
        renewal = item.renewal
        if now_s >= item.end_s or not self._is_there(renewal.client):
            self.drop(renewal.handle)
            return
        handle = renewal.handle
        header = ChangeInvisibleTimeRequestHeader(
            renewal.group,
            renewal.topic,
            handle.queue_id,
            handle.text,
            handle.offset,
            RENEWED_MS,
            renew=True,
            lite_topic=handle.lite_topic,
        )
        try:
            address = await self._masters.place(renewal.topic, handle.broker_name)
            answer = await self._masters.call(
                address,
                lambda: request(
                    RequestCode.CHANGE_MESSAGE_INVISIBLETIME, to_ext(header) | renewal.behalf
                ),
                AGAIN_AFTER_S,
                repeatable=True,
            )
        except CallRefused:
            item.due_s = now_s + AGAIN_AFTER_S
            return
        if answer.code == ResponseCode.SUCCESS:
            self.renewed += 1
            item.due_s = now_s + RENEW_AFTER_S
        elif answer.code in _OVER:
            self.drop(handle)
        else:
            item.due_s = now_s + AGAIN_AFTER_S


def _key(handle: Handle) -> tuple[str, int, int, str]:
    return (handle.broker_name, handle.queue_id, handle.offset, handle.text)
