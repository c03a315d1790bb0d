"""The calls of the upload role, carried out: each ends in exactly one event.

Rules protected: what cannot be used (foreign, newer, damaged) is told apart from what may pass
(an outage, a deadline, a missing right), because the first ends uploads until somebody has looked
and the second is tried again. A byte of the own log that rotted belongs to the second: another
member's copy repairs it. Only the tail of the log, one record, is read on the loop's thread.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from time import time

import google_crc32c
from gantry_protocol.errors import CorruptionError, RecordError
from gantry_protocol.records import MAX_RECORD_BYTES
from gantry_protocol.tier.damage import TierObjectError
from gantry_protocol.tier.keys import ManKey, Shard
from gantry_protocol.tier.packs import BuiltPack
from gantry_protocol.types import Offset

from gantry_broker.log.checked import DamagedError
from gantry_broker.log.commit_log import CommitLog
from gantry_broker.tier.core import effects as fx
from gantry_broker.tier.core import events as ev
from gantry_broker.tier.packing import Order, free, pack
from gantry_broker.tier.room import PackRoom
from gantry_broker.tier.stores.contract import (
    DATA_TIMEOUT_S,
    Created,
    Creation,
    Store,
    StoreError,
)
from gantry_broker.tier.stores.owner import own_prefix
from gantry_broker.tier.stores.versions import list_later, read_later, read_version


class Calls:
    """Does what the role asks for, on one store and one log.

    Args:
        store: the object store.
        place: the group's place in it.
        group: the group's name, for whoever reads the prefix.
        log: the local commit log.
        seen: why there must be versions in the store; empty where there may be none yet.
        line: where calls of the store wait for those of other groups.
        room: for packs, which those of other groups share.

    Attributes:
        failures: calls that failed, by the kind of failure; there are about ten kinds.
    """

    def __init__(
        self,
        store: Store,
        place: Shard,
        group: str,
        log: CommitLog,
        seen: Callable[[], str] = lambda: "",
        *,
        line: asyncio.Semaphore,
        room: PackRoom,
    ) -> None:
        """Nothing is asked yet."""
        self._store = store
        self._place = place
        self._group = group
        self._log = log
        self._seen = seen
        self.failures: Counter[str] = Counter()
        self._line = line
        self._room = room
        self._held_bytes = 0  # of the room, for the pack in hand

    async def run(self, call: fx.Call) -> ev.Result:
        """Carry out one call; never raises but when it is cancelled."""
        try:
            match call:
                case fx.CutPack():
                    return ev.PackCut(call.ticket, await self._cut_in_room(call))
                case fx.ReadTail(at=at, size=size):
                    return ev.TailRead(call.ticket, self._sum(at, size))
            async with self._line:
                return await self._run(call)
        except DamagedError as error:
            self.failures[type(error).__name__] += 1
            return ev.CallFailed(call.ticket, str(error))
        except (TierObjectError, CorruptionError, RecordError) as error:
            self.failures[type(error).__name__] += 1
            return ev.CallRefused(call.ticket, str(error))
        except (StoreError, OSError, ValueError) as error:
            self.failures[type(error).__name__] += 1
            return ev.CallFailed(call.ticket, str(error) or type(error).__name__)

    def settle(self, *, holds_pack: bool) -> None:
        """Give the room of the pack back unless the role has it in hand."""
        if not holds_pack:
            size_bytes, self._held_bytes = self._held_bytes, 0
            self._room.give_back(size_bytes)

    async def _run(self, call: fx.StoreCall) -> ev.Result:
        store, place, ticket = self._store, self._place, call.ticket
        match call:
            case fx.CheckMeta():
                await own_prefix(store, place, self._group, int(time() * 1000))
                return ev.MetaChecked(ticket)
            case fx.ReadVersions(after=after, limit=limit):
                versions = await read_later(store, place, after, limit, seen=self._seen())
                return ev.VersionsRead(ticket, versions)
            case fx.CreateVersion(v=v, data=data):
                made = await store.create(place.key(ManKey(v)), data)
                return _ended(ticket, made)
            case fx.ReadVersion(v=v):
                return ev.VersionRead(ticket, await read_version(store, place, v))
            case fx.ListAfter(v=v):
                return ev.Listed(ticket, bool(await list_later(store, place, v, 1)))
            case fx.StorePack(key=key, data=data):
                try:
                    made = await store.create(place.key(key), data, timeout_s=DATA_TIMEOUT_S)
                    await asyncio.to_thread(free, data)
                finally:
                    self.settle(holds_pack=False)
                return _ended(ticket, made)
            case fx.FindPack():
                return ev.PackFound(ticket, await self._is_there(call))

    # ---- packs and the log

    async def _is_there(self, call: fx.FindPack) -> bool:
        start = call.size - len(call.end)
        key = self._place.key(call.key)
        found = await self._store.get_range(key, start, len(call.end) + 1)
        return found == call.end

    async def _cut_in_room(self, call: fx.CutPack) -> BuiltPack:
        """The pack, once there is room for it, which it keeps until it was sent or given up."""
        size_bytes = min(call.limit - call.lo, call.target_bytes)
        await self._room.take(size_bytes)
        try:
            pack = await self._cut(call)
        except BaseException:
            self._room.give_back(size_bytes)
            raise
        self._held_bytes += size_bytes
        return pack

    async def _cut(self, call: fx.CutPack) -> BuiltPack:
        most = call.lo + call.target_bytes + MAX_RECORD_BYTES
        return await self._cut_below(call, Offset(min(call.limit, most)))

    async def _cut_below(self, call: fx.CutPack, limit: Offset) -> BuiltPack:
        order = Order(
            place=self._place,
            pair=call.pair,
            nonce=call.nonce,
            lo=call.lo,
            target_bytes=call.target_bytes,
            lineage=call.lineage,
            stretches=tuple(self._log.stretches(call.lo, limit)),
        )
        try:
            return await pack(order)
        except DamagedError as error:
            # Another thread found it; the log has it repaired once its own look has found it, too.
            self._log.compare(error.damage.start, error.damage.end)
            if error.damage.start <= call.lo:
                raise
            # On a full disk the log alone has its newest sums, and an upload is what makes room.
            return await self._cut_below(call, Offset(error.damage.start))

    def _sum(self, at: Offset, size: int) -> str:
        data = self._log.read(at, size)
        return f"{google_crc32c.value(data):08x}"


def _ended(ticket: int, made: Creation) -> ev.Result:
    return ev.Created(ticket) if isinstance(made, Created) else ev.Maybe(ticket, made.reason)
