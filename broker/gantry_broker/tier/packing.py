"""Packs are made beside the event loop: small ones in a thread, large ones in a process.

A thread shares the interpreter's lock with the loop, and clients wait meanwhile: some milliseconds
per MiB, so it is good enough for little, and starting a process would cost more. The process is
started for one pack, yields the processor to its broker, and ends with it: nothing waits in it, so
nothing is left of it when the broker is killed. It reads the log's files itself and hands the pack
over in anonymous memory, because copying 64 MiB holds up a loop as surely as working on them.

Rule protected: only whole units of the given stretch get into a pack, each checked on the way.
What it refuses: a pack whose process did not end well.
"""

import asyncio
import mmap
import os
import subprocess
import sys
from pathlib import Path

import msgspec
from gantry_protocol.errors import CorruptionError, RecordError
from gantry_protocol.tier.keys import CLASS_FOR_EVER, PackKey, Pair, Shard
from gantry_protocol.tier.manifests import PackEntry, Tail
from gantry_protocol.tier.packs import BuiltPack, encode_pack
from gantry_protocol.types import EpochEntry, Offset

from gantry_broker.log.checked import read_checked
from gantry_broker.log.segments import Stretch
from gantry_broker.log.units import unit_size

THREAD_MAX_BYTES = 1024 * 1024  # about 10 ms of work; a process takes 100 ms to start
NICENESS = 10  # a tenth of the broker's share where they compete
PROCESS = "gantry_broker.tier.pack_process"


class Order(msgspec.Struct, frozen=True):
    """A pack to be made.

    Attributes:
        place: whose log it is.
        pair, nonce: go into the key.
        lo: where the pack begins.
        target_bytes: it ends with the first unit that reaches this, or with the stretches.
        lineage: the whole lineage of the log.
        stretches: where the log from ``lo`` on stands, up to what may be uploaded.
    """

    place: Shard
    pair: Pair
    nonce: str
    lo: Offset
    target_bytes: int
    lineage: tuple[EpochEntry, ...]
    stretches: tuple[Stretch, ...]


class PackAnswer(msgspec.Struct, frozen=True):
    """The process's report on the pack that it made, or the reason why the log makes none."""

    hi: int = 0
    entry: PackEntry | None = None
    tail: Tail | None = None
    refused: str = ""


_answer_decoder = msgspec.msgpack.Decoder(PackAnswer)


def make(order: Order) -> BuiltPack:
    """The pack; blocks for about 10 ms per MiB.

    Raises:
        DamagedError: a byte is not what was flushed.
        CorruptionError: what stands in a file is no unit.
        RecordError: it is no sound record, or they do not fit one pack.
        OSError: a file cannot be read.
    """
    log = _log(order)
    size = _whole(log, order)
    if size < len(log):
        log = log[:size]
    return encode_pack(log, order.place, key_of(order, order.lo + size), order.lineage)


def key_of(order: Order, hi: int) -> PackKey:
    """The name of the pack [lo, hi)."""
    return PackKey(order.pair, order.lo, hi, CLASS_FOR_EVER, order.nonce)


def _log(order: Order) -> bytes:
    return b"".join(_read(stretch) for stretch in order.stretches)


def _read(stretch: Stretch) -> bytes:
    return read_checked(stretch.path, [(stretch.position, stretch.size)])[0]


def _whole(log: bytes, order: Order) -> int:
    """Bytes of the units that go into the pack; at least one does."""
    end = 0
    while end < order.target_bytes:
        try:
            size = unit_size(log, end)
        except RecordError as error:
            raise _damage(order, end, str(error)) from error
        if size == 0 or end + size > len(log):
            break
        end += size
    if end == 0:
        raise _damage(order, 0, "no whole record stands where the log should go on")
    return end


def _damage(order: Order, at: int, reason: str) -> CorruptionError:
    for stretch in order.stretches:
        if at < stretch.size:
            break
        at -= stretch.size
    return CorruptionError(Path(stretch.path), stretch.position + at, reason)


async def pack(order: Order) -> BuiltPack:
    """As ``make``, beside the event loop; ``free`` what comes of it.

    Raises:
        CorruptionError, RecordError: see ``make``.
        OSError: as well; or the process could not be started, or did not end well. Worth another
            attempt.
    """
    size = sum(stretch.size for stretch in order.stretches)
    if min(size, order.target_bytes) <= THREAD_MAX_BYTES:
        return await asyncio.to_thread(make, order)
    memory = os.memfd_create("pack")
    try:
        answer = await _ask(order, memory)
        if answer.entry is None:
            await asyncio.to_thread(_log, order)  # raises where a byte rotted, and says which
            raise RecordError(answer.refused)
        data = mmap.mmap(memory, answer.entry.size, prot=mmap.PROT_READ)
    finally:
        os.close(memory)
    return BuiltPack(key_of(order, answer.hi), data, answer.entry, answer.tail)


async def _ask(order: Order, memory: int) -> PackAnswer:
    process = subprocess.Popen(  # noqa: ASYNC220, S603 -- our own module; the thread below waits
        [sys.executable, "-I", "-m", PROCESS, str(memory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(memory,),
    )
    try:
        os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        said, complaint = await asyncio.to_thread(
            process.communicate, msgspec.msgpack.encode(order)
        )
    finally:
        process.kill()  # of no effect after its end; otherwise the thread above collects it
    if process.returncode != 0:
        last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise OSError(f"the process that makes packs ended with {process.returncode}: {last}")
    return _answer_decoder.decode(said)


def free(data: bytes | mmap.mmap) -> None:
    """Give a large pack's memory back; to be called in a thread, since that takes 20 ms.

    A call that was abandoned may still read it; it is freed with that call then.
    """
    if isinstance(data, mmap.mmap):
        try:
            data.close()
        except BufferError:
            return
