"""The stream of role changes of one quorum.

The stream only says that a group is worth looking at; what is done about it rests on a linearizable
read. So a lost, repeated or late line can delay a role label, never make it wrong. Lines of a lower
epoch than the last one are dropped. A silent stream is a dead one: the leader sends a heartbeat
line every second.

What the status says of a settled group rests on the last look at it, and on this stream for what
came later. So everything that rests on the controllers is looked at again when there is no stream
although they have answered since the last time, and when there is one after an attempt in vain: at
most `EVIDENCE_MAX_S` after a stream was last heard, the status says Unknown, and a group that was
applied before its controllers ran is looked at when they do. A stream that is merely late costs a
look and changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from gantry_protocol.admin import TierView, WatchEvent
from gantry_protocol.admin_client.errors import AdminError
from gantry_protocol.admin_client.quorum import READ_DEADLINE_S
from gantry_protocol.process import log
from pydantic import ValidationError

if TYPE_CHECKING:
    from gantry_protocol.admin_client.quorum import Quorum

SILENCE_S = 2.5
EVIDENCE_MAX_S = SILENCE_S + READ_DEADLINE_S
"""How old the evidence of a status may become while the controllers do not answer."""
RETRY_S = 0.5
MAX_RETRY_S = 1.0
MAX_LINE_BYTES = 256 * 1024
MAX_GROUPS = 100_000
_log = log.get("watch")

OnChange = Callable[[str], None]
OnDoubt = Callable[[], None]


class RoleWatch:
    """Follows one quorum until cancelled.

    Args:
        quorum: whose changes.
        on_change: called with the name of a group whose roles, set or members changed.
        on_doubt: called when there is no stream, once per answer that may be believed until then,
            and when there is one again.
    """

    def __init__(self, quorum: Quorum, on_change: OnChange, on_doubt: OnDoubt) -> None:
        self._quorum = quorum
        self._on_change = on_change
        self._on_doubt = on_doubt
        self._missed = False  # the last attempt was in vain, or its stream ended
        self._answers_doubted = 0
        self._known: dict[tuple[str | None, str], tuple[int, bytes]] = {}
        self._delay_s = RETRY_S

    @property
    def groups(self) -> set[str]:
        """The groups that the stream has named and not called deleted."""
        return {group for _, group in self._known}

    async def run(self) -> None:
        """Connects, reads, connects again."""
        while True:
            try:
                await self._follow()
            except (AdminError, aiohttp.ClientError, HttpProcessingError, OSError) as error:
                _log.debug("stream ended", quorum=self._quorum.name, error=error)
            self._missed = True
            # Also without a stream before: a look between two attempts may have been answered, and
            # nobody would be told that the controllers fell silent after it.
            if self._quorum.answers != self._answers_doubted:
                self._answers_doubted = self._quorum.answers
                self._on_doubt()
            await asyncio.sleep(self._delay_s * random.uniform(0.5, 1.0))  # noqa: S311 -- no secret
            self._delay_s = min(self._delay_s * 2, MAX_RETRY_S)

    async def _follow(self) -> None:
        response = await self._quorum.open_stream("/v1/watch?since=0")
        if self._missed:
            self._missed = False
            self._on_doubt()
        try:
            while True:
                async with asyncio.timeout(SILENCE_S):
                    line = await response.content.readuntil(b"\n", max_size=MAX_LINE_BYTES)
                if not line.endswith(b"\n"):
                    return  # the end of the stream
                self.take(line)
                self._delay_s = RETRY_S
        finally:
            response.close()

    def take(self, line: bytes) -> None:
        """Takes in one line; reports the group if it changed."""
        try:
            event = WatchEvent.model_validate_json(line)
        except ValidationError:
            _log.warning("unreadable line in the stream", quorum=self._quorum.name)
            return
        if event.heartbeat or event.group is None:
            return
        key = (event.cluster, event.group)
        fingerprint = _fingerprint(event)
        epoch, known = self._known.get(key, (-1, b""))
        if event.master_epoch < epoch or fingerprint == known:
            return
        if event.deleted:
            self._known.pop(key, None)
        elif key in self._known or len(self._known) < MAX_GROUPS:
            self._known[key] = (event.master_epoch, fingerprint)
        self._on_change(event.group)


def _fingerprint(event: WatchEvent) -> bytes:
    """Of what makes a line news; offsets and ages do not."""
    news = (
        event.deleted,
        event.master_broker_id,
        event.master_epoch,
        tuple(event.sync_state_set),
        event.sync_state_set_epoch,
        tuple((m.broker_id, m.pod_uid, m.alive, m.draining, _tier(m.tier)) for m in event.members),
        event.mastership is not None and event.mastership.first_write_ms,
    )
    return hashlib.blake2b(repr(news).encode(), digest_size=16).digest()


def _tier(tier: TierView | None) -> tuple[object, ...] | None:
    """State, epoch, whether something is committed, whether something is wrong."""
    if tier is None:
        return None
    return (tier.state, tier.epoch, tier.committed_offset is not None, bool(tier.reason))
