"""The beginning of a member from the tier of a group that is gone: its log, copied from the packs.

Before a volume is recovered, its log is built in a directory beside the store's, and becomes the
store's with one rename once it is complete and durable. From then on the volume is like one that a
member of the former group left: the log as far as the tier goes, and its lineage, with the epoch of
the take as the newest line. So the controllers refuse it until the group is adopted
(``AdoptGroup``), and everything that follows from the log is made from it as at any start.

Rules protected: a volume that holds anything is left as it is; the tier's end is final before the
copy begins, since the take fences whoever uploaded there; nothing in the store is deleted or
changed. What it refuses: to begin with a part of the tier. It waits, and says what for.
"""

import asyncio
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from time import time

from gantry_protocol.errors import GantryError, RecordError
from gantry_protocol.process import log
from gantry_protocol.process.files import fsync_directory
from gantry_protocol.tier import chain as chains
from gantry_protocol.tier.chain import ChainState
from gantry_protocol.tier.damage import ChainError, TierObjectError
from gantry_protocol.tier.keys import ManKey, MetaKey
from gantry_protocol.tier.manifests import MAX_OBJECT_BYTES, decode_owner, encode
from gantry_protocol.types import Epoch, EpochEntry, Offset

from gantry_broker.log.commit_log import CommitLog
from gantry_broker.log.segments import list_segments
from gantry_broker.member import lineage_file
from gantry_broker.member.options import GroupOptions
from gantry_broker.queues import MessageStore
from gantry_broker.replica import Lineage, StoredState
from gantry_broker.tier.core.beginning import BeginEmpty, CannotBegin, CopyTier, TakeTier, beginning
from gantry_broker.tier.options import TierOptions
from gantry_broker.tier.seen import Seen
from gantry_broker.tier.stores.contract import Store, StoreError
from gantry_broker.tier.stores.packs import read_log
from gantry_broker.tier.stores.versions import read_later

STORE, STAGED = "store", "restoring"
VERSIONS = 256  # of one read
WAIT_FIRST_S = 0.2
WAIT_LAST_S = 30.0
ROOM = 1.1  # of the log's bytes: what is derived from them needs some, too

_log = log.get("tier")


class RestoreError(GantryError):
    """It cannot go on now; waited for, since a person or time may change that."""


class Restoring:
    """The copy for one volume; see the module.

    Args:
        options: of the group, which has a tier of another one.
        tier: of them.
        store: where it is.
        told: takes what is being done, a clause for people.
    """

    def __init__(
        self, options: GroupOptions, tier: TierOptions, store: Store, told: Callable[[str], None]
    ) -> None:
        """Nothing is read yet."""
        self._options = options
        self._tier = tier
        self._store = store
        self._told = told
        self._chain = chains.empty(tier.place)
        self._log: CommitLog | None = None

    async def run(self) -> None:
        """Fill the volume, if it holds nothing; takes as long as it takes.

        Raises:
            CorruptionError: a file on the volume is damaged.
            GantryError: the disk is full, or failed.
        """
        if not await asyncio.to_thread(self._holds_nothing):
            return
        try:
            await self._until_done()
        finally:
            if self._log is not None:
                await asyncio.to_thread(self._log.close)

    async def _until_done(self) -> None:
        wait_s = WAIT_FIRST_S
        while True:
            begun = self._chain.v
            try:
                if await self._go_on():
                    return
            except (RestoreError, StoreError, TierObjectError, ChainError) as error:
                self._told(f"waiting for its tier: {error}")
                _log.warning("the tier cannot be begun from", reason=error)
                if self._chain.v > begun:
                    wait_s = WAIT_FIRST_S
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, WAIT_LAST_S)

    def _holds_nothing(self) -> bool:
        """Whether the log is to be copied; ends what a crash left half done."""
        directory = self._options.directory
        store, staged = directory / STORE, directory / STAGED
        stored = lineage_file.load(directory)
        if stored.epoch and staged.exists() and not store.exists():  # complete, but for the rename
            self._rename(staged, store)
        files = store / "commitlog"
        empty = not stored.epoch and not (files.exists() and list_segments(files))
        if not empty:
            shutil.rmtree(staged, ignore_errors=True)
        return empty

    # ---- the chain

    async def _go_on(self) -> bool:
        """One look at the tier, and the step that it leads to; returns whether that was the last.

        Raises:
            RestoreError: a person must look.
        """
        await self._read_chain()
        tier = self._tier
        match beginning(self._chain, owner=tier.owner, former=tier.former):
            case CannotBegin(reason=reason):
                raise RestoreError(reason)
            case TakeTier():
                await self._take()
                return False
            case BeginEmpty():
                await asyncio.to_thread(shutil.rmtree, self._staged, ignore_errors=True)
                return True
            case CopyTier():
                await self._copy()
                return True

    async def _read_chain(self) -> None:
        place = self._tier.place
        meta = await self._store.get(place.key(MetaKey()), max_bytes=MAX_OBJECT_BYTES)
        if meta is not None:
            decode_owner(meta, place, self._options.group)
        more = True
        while more:
            found = await read_later(self._store, place, self._chain.v, VERSIONS)
            if found and self._chain.v == 0 and found[0].v > 1:
                self._chain = chains.before(self._chain, found[0])
            self._chain = chains.advance(self._chain, found)
            more = len(found) == VERSIONS

    async def _take(self) -> None:
        """Try to; the next look shows who has."""
        version = chains.take(
            self._chain,
            owner=self._tier.owner,
            writer=self._options.name or self._options.group,
            nonce=secrets.token_hex(16),
            at_ms=int(time() * 1000),
        )
        _log.warning(
            "taking the tier over",
            shard=self._chain.shard,
            of=self._chain.owner,
            epoch=version.epoch,
            end=version.end,
        )
        await self._store.create(self._tier.place.key(ManKey(version.v)), encode(version))

    # ---- the copy

    @property
    def _staged(self) -> Path:
        return self._options.directory / STAGED

    async def _copy(self) -> None:
        chain = self._chain
        if self._log is None:
            self._log = await asyncio.to_thread(self._open, chain)
        copied = self._log
        while copied.end < chain.end:
            entry = chain.pack_at(copied.end)
            assert entry is not None, "packs lie end to end"
            done, whole = copied.end - chain.start, chain.end - chain.start
            self._told(f"copying its log from the tier: {done} of {whole} bytes")
            parts = await read_log(self._store, self._tier.place, entry)
            await _uninterrupted(self._append, copied, entry.lo, parts)
        self._log = None
        await _uninterrupted(self._finish, copied, chain)
        _log.info("the log was copied from the tier", start=chain.start, end=chain.end)

    def _open(self, chain: ChainState) -> CommitLog:
        """A new log that begins where the tier begins; what an earlier start copied is dropped."""
        directory = self._options.directory
        shutil.rmtree(self._staged, ignore_errors=True)
        need_bytes = int((chain.end - chain.start) * ROOM)
        free_bytes = shutil.disk_usage(directory).free
        if need_bytes > free_bytes:
            raise RestoreError(
                f"the tier holds {chain.end - chain.start} bytes of the log, all of which are "
                f"copied, and {free_bytes} are free in {directory}: give it a larger volume"
            )
        copied = CommitLog.open(self._staged / "commitlog", self._options.log_segment_bytes)
        if chain.start:
            copied.reset(Offset(chain.start))
        return copied

    @staticmethod
    def _append(copied: CommitLog, lo: int, parts: list[bytes]) -> None:
        """Append a pack's range, file by file, durably; but for what is there."""
        try:
            for part in parts:
                if lo == copied.end:
                    copied.append_raw(copied.end, part)
                lo += len(part)
        except RecordError as error:
            raise RestoreError(f"the pack up to offset {lo} holds no log: {error}") from error
        copied.flush()

    def _finish(self, copied: CommitLog, chain: ChainState) -> None:
        """Everything is there: prove it, and make it the volume's log."""
        copied.close()
        directory = self._options.directory
        proved = MessageStore.open(
            self._staged, self._options.log_segment_bytes, confirm_floor=Offset(chain.end)
        )
        is_whole = proved.is_whole
        proved.close()
        if not is_whole:
            raise RestoreError(
                f"the tier begins at offset {chain.start}, and no whole state follows there: "
                "topics and consumer offsets are not known"
            )
        Seen(directory, self._tier.url, self._tier.place).mark()
        shutil.rmtree(directory / STORE, ignore_errors=True)  # of a start before it was to be
        taken = EpochEntry(Epoch(chain.pair.epoch), Offset(chain.end))
        lineage = Lineage([*chain.lineage, taken])
        lineage_file.save(directory, StoredState(taken.epoch, lineage, Offset(chain.end)))
        self._rename(self._staged, directory / STORE)

    @staticmethod
    def _rename(staged: Path, store: Path) -> None:
        staged.rename(store)
        fsync_directory(store.parent)


async def _uninterrupted(work: Callable[..., None], *args: object) -> None:
    """In a thread, and to its end: who is cancelled meanwhile still owns the files until then."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        await asyncio.shield(running)
    finally:
        await asyncio.gather(running, return_exceptions=True)


async def restore(
    options: GroupOptions, tier: TierOptions, store: Store, told: Callable[[str], None]
) -> None:
    """Begin from the tier of another group, if the volume holds nothing; see ``Restoring``.

    Raises:
        GantryError: as ``Restoring.run``.
    """
    await Restoring(options, tier, store, told).run()
    told("reading its volume")
