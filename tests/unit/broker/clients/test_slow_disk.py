"""A disk that does not answer delays whoever reads what is only there, and nobody else."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from gantry_broker.log.segments import Stretch
from gantry_broker.member import cold_reads
from gantry_broker.member.cold_reads import ColdReads, read_stretches
from gantry_protocol.command import RemotingCommand
from gantry_protocol.records import decode_records
from support import stores
from support.group_view import FakeGroup

from .conftest import PULL

SEND: dict[str, object] = {
    "a": "p", "b": "TopicTest", "c": "TBW102", "d": 4, "e": 0, "f": 0,
    "g": 1_700_000_000_000, "h": 0, "i": "", "j": 0, "k": False, "m": False,
}  # fmt: skip


class SlowDisk:
    """Has everything below `cold_below` of the log, and answers when it is told to."""

    def __init__(self, group: FakeGroup, monkeypatch: pytest.MonkeyPatch) -> None:
        log = group.messages.log
        cached, self.cold_below = log.read_cached, log.end
        self.answers = threading.Event()
        self.fails: OSError | None = None
        self.read: list[Stretch] = []
        self.pool = ThreadPoolExecutor(1)
        monkeypatch.setattr(
            log,
            "read_cached",
            lambda offset, size: None if offset < self.cold_below else cached(offset, size),
        )
        self.reads = group.local.cold = ColdReads(log, self.pool, self._read)

    def _read(self, stretches: Sequence[Stretch]) -> list[bytes]:
        assert threading.current_thread() is not threading.main_thread()
        assert self.answers.wait(30)
        self.read += stretches
        if self.fails is not None:
            raise self.fails
        return read_stretches(stretches)


@pytest.fixture
def disk(group: FakeGroup, monkeypatch: pytest.MonkeyPatch):
    for number in range(40):  # queue 0 and 1 by turns, so that a pull is many places of the log
        record = stores.message("TopicTest", number % 2, b"%d" % number)
        stores.put(group.messages, record)
    stores.confirm(group.messages)
    made = SlowDisk(group, monkeypatch)
    yield made
    made.answers.set()
    made.pool.shutdown()


async def _answered(client, asked: RemotingCommand) -> RemotingCommand:
    """The answer that comes when the disk has said something."""
    return await _soon(lambda: [one for to, one in client.conn.replies if to is asked])


async def _soon(found: Callable[[], list[RemotingCommand]]) -> RemotingCommand:
    async with asyncio.timeout(30):
        while not found():
            await asyncio.sleep(0.001)
    (answer,) = found()
    return answer


def _bodies(answer: RemotingCommand) -> list[bytes]:
    return [record.body for record in decode_records(answer.body)]


async def test_while_the_disk_is_silent_sends_and_hot_pulls_are_answered(
    client, connect, disk: SlowDisk
) -> None:
    asked, answer = client.ask(11, PULL)
    assert answer is None, "it waits, and the event loop does not"
    other = connect()
    for number in range(5):
        sent = other.call(310, SEND | {"e": 2}, b"new %d" % number)
        assert sent.code == 0
        hot = other.call(11, PULL | {"queueId": 2, "queueOffset": number})
        assert (hot.code, _bodies(hot)) == (0, [b"new %d" % number])
    assert len(disk.reads) == 1
    disk.answers.set()
    answer = await _answered(client, asked)
    assert answer.code == 0
    assert _bodies(answer) == [b"%d" % number for number in range(0, 40, 2)]
    assert len(disk.read) == 20, "all of a pull is read in one go"
    assert (len(disk.reads), disk.reads.asked, disk.reads.refused) == (0, 1, 0)


async def test_too_many_readers_of_the_disk_are_sent_back(
    client, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_reads, "WAITING_MAX", 3)
    waiting = [client.ask(11, PULL)[0] for _ in range(3)]
    refused = client.call(11, PULL | {"queueId": 1})
    assert (refused.code, disk.reads.refused) == (2, 1)
    disk.answers.set()
    for asked in waiting:
        assert (await _answered(client, asked)).code == 0
    asked, _ = client.ask(11, PULL)
    assert (await _answered(client, asked)).code == 0, "there is room again"


async def test_the_end_of_a_mastership_sends_who_waits_back_at_once(
    client, group: FakeGroup, disk: SlowDisk
) -> None:
    asked, _ = client.ask(11, PULL)
    group.local.end()
    answer = await _answered(client, asked)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (20, "0")
    disk.answers.set()
    disk.pool.shutdown()
    await asyncio.sleep(0)
    assert len([one for to, one in client.conn.replies if to is asked]) == 1


async def test_a_disk_that_fails_is_a_refusal_of_this_read(client, disk: SlowDisk) -> None:
    disk.fails = OSError(errno.EIO, "Input/output error")
    disk.answers.set()
    asked, _ = client.ask(11, PULL)
    answer = await _answered(client, asked)
    assert answer.code == 1
    assert "Input/output error" in answer.remark
    assert client.call(310, SEND | {"e": 2}, b"x").code == 0


async def test_a_file_that_was_trimmed_meanwhile_is_asked_for_no_more_than_thrice(
    client, disk: SlowDisk
) -> None:
    disk.fails = FileNotFoundError(errno.ENOENT, "gone")
    disk.answers.set()
    asked, _ = client.ask(11, PULL)
    answer = await _answered(client, asked)
    assert (answer.code, disk.reads.asked) == (2, 3)


def test_what_left_memory_is_not_waited_for(tmp_path) -> None:
    store = stores.open_store(tmp_path)
    stores.put(store, stores.message(body=bytes(50_000)))
    stores.confirm(store)
    log, size = store.log, store.log.end
    assert log.read_cached(log.log_start, size) == log.read(log.log_start, size)
    (stretch,) = log.stretches(log.log_start, size)
    descriptor = os.open(stretch.path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    cached = log.read_cached(log.log_start, size)
    assert cached is None or [cached] == read_stretches([stretch])  # memory file systems keep it
    assert log.read_cached(log.log_start, 10_000) in (None, read_stretches([stretch])[0][:10_000])
    store.close()
