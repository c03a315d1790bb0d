"""Packs made in a thread and in a process: the same, and neither leaves anything behind."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path

import pytest
from gantry_broker.log import CommitLog
from gantry_broker.tier import packing
from gantry_protocol.errors import CorruptionError, RecordError
from gantry_protocol.tier.keys import Pair, Shard
from gantry_protocol.tier.packs import rebuild_log
from gantry_protocol.types import Epoch, EpochEntry, Offset

from tests.support.logs import append, boundaries, contents, filled

PLACE = Shard("demo", "7c9e6679-7425-40de-944b-e07fc1f90ae7")
LINEAGE = (EpochEntry(Epoch(1), Offset(0)),)
NONCE = "00112233445566778899aabbccddeeff"
RECORDS = 60  # several segments
ALL = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    """A log of several segments, flushed."""
    log = filled(tmp_path / "log", RECORDS)
    yield log
    log.close()


@pytest.fixture(params=["thread", "process"])
def beside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where packs are made; small ones are not worth a process, except here."""
    if request.param == "process":
        monkeypatch.setattr(packing, "THREAD_MAX_BYTES", 0)


def order(
    log: CommitLog, *, lo: int = 0, limit: int | None = None, target: int = ALL
) -> packing.Order:
    """A pack of the log."""
    end = log.end if limit is None else Offset(limit)
    return packing.Order(
        place=PLACE,
        pair=Pair(1, 1),
        nonce=NONCE,
        lo=Offset(lo),
        target_bytes=target,
        lineage=LINEAGE,
        stretches=tuple(log.stretches(Offset(lo), end)),
    )


@pytest.mark.usefixtures("beside")
async def test_a_pack_over_several_segments_holds_every_byte(log: CommitLog) -> None:
    made = await packing.pack(order(log))

    assert rebuild_log(bytes(made.data), PLACE, made.key) == contents(log)
    assert (made.key.lo, made.key.hi) == (made.entry.lo, made.entry.hi) == (0, log.end)
    assert made.tail is not None
    assert made.tail.at + made.tail.size == log.end


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("target", [1, 500, 3000])
async def test_it_ends_with_the_unit_that_reaches_the_target(log: CommitLog, target: int) -> None:
    units = boundaries(log)
    lo = units[3]

    made = await packing.pack(order(log, lo=lo, target=target))

    assert made.key.hi == min(unit for unit in units if unit >= lo + target)


@pytest.mark.usefixtures("beside")
async def test_it_ends_at_the_limit(log: CommitLog) -> None:
    limit = boundaries(log)[5]

    made = await packing.pack(order(log, limit=limit))

    assert made.key.hi == limit


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("into", [0, 100, -3], ids=["size", "body", "property"])
async def test_damage_of_a_later_segment_is_named(log: CommitLog, into: int) -> None:
    at, following = boundaries(log)[40:42]
    path, position = log.locate(at)
    assert int(path.name) > 0
    with path.open("r+b") as file:
        file.seek(position + into if into >= 0 else position + following - at + into)
        file.write(b"\xff")

    with pytest.raises((CorruptionError, RecordError)) as caught:
        await packing.pack(order(log))

    assert str(path) in str(caught.value)
    if into >= 0:  # nothing in a record says that its properties are wrong; their range is named
        assert f"byte {position}:" in str(caught.value)


@pytest.mark.usefixtures("beside")
async def test_a_file_that_is_gone_is_no_damage(log: CommitLog) -> None:
    wanted = order(log)
    Path(wanted.stretches[1].path).unlink()

    with pytest.raises(OSError, match=r"No such file or directory"):
        await packing.pack(wanted)


async def test_what_is_not_flushed_is_not_given_away(log: CommitLog) -> None:
    end = log.end
    append(log)

    with pytest.raises(ValueError, match="not inside the flushed log"):
        log.stretches(end, log.end)


async def test_a_process_that_is_killed_is_no_verdict_on_the_log(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = _watched(monkeypatch, kill=True)

    with pytest.raises(OSError, match="the process that makes packs ended with -9"):
        await packing.pack(order(log))

    assert len(started) == 1


async def test_cancelling_ends_the_process(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    started = _watched(monkeypatch, kill=False)
    making = asyncio.create_task(packing.pack(order(log)))
    while not started:
        await asyncio.sleep(0)
    making.cancel()

    with pytest.raises(asyncio.CancelledError):
        await making

    assert await asyncio.to_thread(started[0].wait, 10) == -9


async def test_neither_descriptors_nor_mappings_stay(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "THREAD_MAX_BYTES", 0)
    before = _held()

    for _ in range(3):
        made = await packing.pack(order(log))
        packing.free(made.data)

    assert isinstance(made.data, mmap)
    assert made.data.closed
    assert _held() == before


def _held() -> list[str]:
    """What is open of the kinds that packing opens; of others, anybody here may open one."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.append(str(descriptor.readlink()))
    return sorted(name for name in found if name.startswith(("/memfd:", "pipe:")))


def _watched(monkeypatch: pytest.MonkeyPatch, *, kill: bool) -> list[subprocess.Popen[bytes]]:
    """The processes that are started from now on; at once killed, if wanted."""
    monkeypatch.setattr(packing, "THREAD_MAX_BYTES", 0)
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def popen(*args: object, **options: object) -> subprocess.Popen[bytes]:
        process = real(*args, **options)
        if kill:
            process.kill()
        started.append(process)
        return process

    monkeypatch.setattr(packing.subprocess, "Popen", popen)
    return started
