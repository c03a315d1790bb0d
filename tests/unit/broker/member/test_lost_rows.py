"""Rows that are damaged or cannot be written under a running member: it makes them again."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_broker.clients.core.transactions import Policy
from gantry_broker.host.client_options import ClientOptions
from gantry_broker.host.hosting import REBUILDS_MAX, HostedGroup
from gantry_broker.log import DerivedLostError
from gantry_broker.member import lineage_file, shell
from gantry_broker.queues.kv import KeyValue
from gantry_broker.store.contract import GetResult, GetStatus, QueueRead, ReadLimits, Refusal
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import VolumeError
from gantry_protocol.settings.defaults import DELAY_LEVELS
from support import logs
from support.broker_cluster import eventually
from support.lone_member import LoneMember, lone_member


@pytest.fixture
async def member(tmp_path: Path) -> AsyncIterator[LoneMember]:
    async with lone_member(tmp_path) as made:
        yield made


def spoil(directory: Path) -> None:
    """Flip a bit in the first block of each table."""
    for file in (directory / "store" / "kv").glob("*.sst"):
        logs.flip(file, 25)


def read(member: LoneMember) -> GetResult | Refusal:
    """The first records of the queue that ``send`` fills."""
    answers: list[Any] = []
    wanted = QueueRead("T", 0, 0, ReadLimits(32, 1 << 20), None)
    member.group.view.store.read(wanted, answers.append)
    (answer,) = answers
    found: GetResult | Refusal = answer
    return found


async def stored(member: LoneMember, count: int = 3) -> None:
    """Records that are acknowledged, and whose rows are in a table."""
    await member.elect(1)
    for _ in range(count):
        member.send()
    await eventually(lambda: len(member.codes) == count, "they are acknowledged")
    member.group.store.save()


async def test_a_damaged_table_ends_its_use_and_not_the_log(
    member: LoneMember, tmp_path: Path
) -> None:
    """The member can still be relieved: what is sent is acknowledged, and nobody reads wrongly."""
    await stored(member)
    spoil(tmp_path)
    answer = read(member)
    assert isinstance(answer, Refusal)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    await eventually(member.group.failure.done, "whoever hosts it is told")
    assert isinstance(member.group.failure.exception(), DerivedLostError)
    member.send()
    await eventually(lambda: len(member.codes) == 4, "the log goes on")
    assert set(member.codes) == {0}


async def test_another_opening_has_everything_again(tmp_path: Path) -> None:
    async with lone_member(tmp_path) as member:
        await stored(member)
        spoil(tmp_path)
        read(member)
        await member.stop()
    async with lone_member(tmp_path) as again:
        await again.elect(2)
        answer = read(again)
        assert isinstance(answer, GetResult)
        assert (answer.status, answer.count) == (GetStatus.FOUND, 3)


async def test_nobody_becomes_the_master_on_rows_that_are_lost(
    member: LoneMember, tmp_path: Path
) -> None:
    """It would number records anew."""
    await stored(member)
    member.depose(2)
    spoil(tmp_path)
    read(member)
    member.learn(member.view(3))
    await eventually(lambda: member.core.serving is not None, "it is elected")
    assert not member.group.serving
    assert "ends" in member.watched.told


async def test_a_lineage_that_finds_no_room_is_saved_again(
    member: LoneMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "SAVE_AGAIN_S", 0.001)
    real, tries = lineage_file.save, []

    def full(directory: Path, state: Any) -> None:
        tries.append(state)
        if len(tries) < 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(directory, state)

    monkeypatch.setattr(lineage_file, "save", full)
    await member.elect(1)
    assert len(tries) == 4
    assert not member.group.failure.done()


async def test_rows_wait_where_there_is_no_room_for_a_table(
    member: LoneMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush without room would be the last that RocksDB does."""
    await stored(member)
    flushes: list[None] = []
    monkeypatch.setattr(KeyValue, "flush", lambda _: flushes.append(None))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=4096))
    member.send()
    await eventually(lambda: len(member.codes) == 4, "it is acknowledged")
    member.group.store.save()
    assert not flushes


@pytest.fixture
async def hosted(member: LoneMember) -> HostedGroup:
    options = ClientOptions(DelayLevels.parse(DELAY_LEVELS), Policy(), None, 72, 16_384)
    made = HostedGroup("g", options)
    made.group, made._options = member.group, member.group.options
    made._shared = member.group._shared
    return made


async def test_it_leaves_as_who_is_told_to_stop_and_comes_back(
    member: LoneMember, hosted: HostedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored(member)
    told: list[str] = []
    hosted.processor = SimpleNamespace(  # type: ignore[assignment]
        flush_offsets=lambda _: told.append("offsets"), close=lambda: None
    )

    def note(what: str) -> Callable[[], Any]:
        async def called(*_: object) -> None:
            told.append(what)

        return called

    monkeypatch.setattr(hosted, "open", note("open"))
    monkeypatch.setattr(hosted, "start", note("start"))
    leave = member.group.leave
    monkeypatch.setattr(member.group, "leave", lambda: (told.append("leave"), leave()))
    member.group.failure.add_done_callback(hosted._group_failed)
    member.group.failure.set_exception(DerivedLostError("lost"))
    await eventually(lambda: "start" in told, "it takes part again")
    assert told == ["offsets", "leave", "open", "start"]
    assert (hosted.rebuilt, hosted.begun_anew) == (1, 0)
    assert not hosted.failure.done()
    member._has_stopped = True


async def test_a_disk_that_spoils_the_rows_again_and_again_ends_the_group(
    hosted: HostedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(**_: object) -> None: ...

    monkeypatch.setattr(hosted, "_begin_anew", nothing)
    for _ in range(REBUILDS_MAX + 1):
        assert not hosted.failure.done()
        failed = hosted.failure.get_loop().create_future()
        failed.set_exception(DerivedLostError("lost"))
        hosted._group_failed(failed)
    assert isinstance(hosted.failure.exception(), DerivedLostError)


async def test_what_a_volume_refuses_is_told_with_the_groups_directory(
    hosted: HostedGroup, tmp_path: Path
) -> None:
    hosted.fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert isinstance(hosted.failure.exception(), VolumeError)
    assert str(tmp_path) in str(hosted.failure.exception())
