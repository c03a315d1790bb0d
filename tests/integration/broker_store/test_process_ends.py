"""What a process leaves when it is killed, and how it ends when its disk is bad."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gantry_broker.queues import MessageStore
from gantry_broker.store.contract import ReadLimits
from gantry_protocol.process.runtime import run
from gantry_protocol.records import MessageRecord, decode_records
from support import logs

SEGMENT_BYTES = 1 << 16

WRITER = """
import asyncio, sys
from pathlib import Path
from gantry_broker.queues import MessageStore
from gantry_protocol.records import MessageRecord

async def main():
    store = MessageStore.open(Path(sys.argv[1]), 1 << 16)
    store.take_mastership()
    number = store.next_offset("T", 0)
    while True:
        done = asyncio.get_running_loop().create_future()
        records = [MessageRecord(topic="T", body=b"%d" % (number + n)) for n in range(7)]
        store.put(records, now_ms=1)
        store.log.flush_soon(lambda flushed: done.done() or done.set_result(flushed))
        store.dispatch(await done)
        number += 7
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()

asyncio.run(main())
"""


def _kill_after(directory: Path, acknowledged: int) -> int:
    """Run the writer until it has acknowledged so many, kill it; returns how many it did."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    seen = 0
    try:
        for line in process.stdout:
            seen = int(line)
            if seen >= acknowledged:
                break
    finally:
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        process.stdout.close()
        process.wait()
    return int(rest[-1]) if rest else seen


def test_everything_acknowledged_survives_kill_9_again_and_again(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    wanted = 0
    for _ in range(3):
        acknowledged = _kill_after(directory, wanted + 300)
        assert acknowledged >= wanted + 300
        store = MessageStore.open(directory, SEGMENT_BYTES)
        store.dispatch(store.log.end)
        found = decode_records(store.get("T", 0, 0, ReadLimits(10**6, 10**9)).body)
        assert [record.body for record in found] == [b"%d" % n for n in range(len(found))]
        assert len(found) >= acknowledged
        wanted = len(found)
        store.close()


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    store = MessageStore.open(tmp_path, SEGMENT_BYTES)
    store.take_mastership()
    store.put([MessageRecord(topic="T", body=bytes(100)) for _ in range(20)], now_ms=1)
    store.log.flush()
    store.dispatch(store.log.end)
    store.close()
    return tmp_path


@pytest.mark.parametrize("position", [13, 150, 2000])
def test_a_flipped_bit_is_noted_at_the_start_and_changes_nothing(
    damaged: Path, position: int
) -> None:
    file = damaged / "commitlog" / f"{0:020d}"
    logs.flip(file, position)
    before = file.read_bytes()
    store = MessageStore.open(damaged, SEGMENT_BYTES)
    (damage,) = store.log.checks.damage.values()
    assert damage.path == file
    assert damage.start <= position < damage.end
    store.close()
    assert file.read_bytes() == before


@pytest.mark.parametrize("kept", [0, 13, 2000])
def test_missing_bytes_end_the_start_with_one_sentence(damaged: Path, kept: int) -> None:
    file = damaged / "commitlog" / f"{0:020d}"
    os.truncate(file, kept)
    before = logs.directory_bytes(damaged / "commitlog")

    async def main(stop: asyncio.Event) -> None:
        await asyncio.to_thread(MessageStore.open, damaged, SEGMENT_BYTES)

    said = io.StringIO()
    assert run(main, stderr=said) == 2
    assert said.getvalue().count("\n") == 1
    assert f"{file} is damaged at byte " in said.getvalue()
    assert "nothing was changed" in said.getvalue()
    assert logs.directory_bytes(damaged / "commitlog") == before


def test_a_failing_disk_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledged: list[int] = []

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def main(stop: asyncio.Event) -> None:
        store = MessageStore.open(tmp_path / "store", SEGMENT_BYTES)
        store.take_mastership()
        store.put([MessageRecord(topic="T", body=b"x")], now_ms=1)
        monkeypatch.setattr(os, "fdatasync", broken)
        store.log.flush_soon(acknowledged.append)
        await asyncio.sleep(30)

    said = io.StringIO()
    assert run(main, stderr=said) == 70
    assert acknowledged == []
    assert said.getvalue().startswith("gantry: The disk under ")
    assert "Input/output error" in said.getvalue()
