"""A member whose log is damaged where its queues are not derived yet is elected the master."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from gantry_broker.log import DerivedLostError
from gantry_broker.member import shell
from gantry_broker.replica import events as ev
from gantry_broker.replica.messages import Hello, Truncate
from gantry_broker.store.contract import QueueRead, ReadLimits, Refusal
from gantry_protocol.types import BrokerId, Epoch, Offset
from support import logs
from support.broker_cluster import eventually
from support.lone_member import LoneMember, lone_member

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 5


async def rotten(directory: Path, number: int) -> tuple[Path, int]:
    """A volume whose record ``number`` of five rotted; its tables are lost. Where the bit is."""
    async with lone_member(directory) as member:
        await member.elect(1)
        ends = [0]
        for _ in range(COUNT):
            member.send()
            await member.flushed()
            ends.append(member.end)
        await eventually(lambda: member.codes == [0] * COUNT, "all are confirmed")
        path = member.group.store.log.locate(Offset(0))[0]
    shutil.rmtree(directory / "store" / "kv")
    logs.flip(path, ends[number] + 60)
    return path, ends[number]


def follower(member: LoneMember, link: int) -> None:
    """Broker 2, which holds all that there is, attaches."""
    facts = member.core.log
    hello = Hello(
        epoch=member.core.epoch,
        broker_id=BrokerId(2),
        incarnation="x",
        log_start=Offset(0),
        end=facts.end,
        lineage=facts.lineage.entries[:1],
        draining=False,
    )
    member.group.step(ev.Received(link, hello))
    member.ack(link, facts.end)


def registered(member: LoneMember) -> None:
    """The controllers know it."""
    assert member.group.agent is not None
    member.group.agent.registered = True


def read(member: LoneMember, offset: int) -> object:
    answers: list[object] = []
    wanted = QueueRead("T", 0, offset, ReadLimits(32, 1 << 20), None)
    member.group.view.store.read(wanted, answers.append)
    return answers[0]


async def test_it_does_not_serve_while_another_may_have_what_is_damaged(tmp_path: Path) -> None:
    await rotten(tmp_path, 2)
    async with lone_member(tmp_path) as member:
        member.learn(member.view(2, members=(1, 2)))
        await eventually(lambda: member.core.serving is not None, "it is the master")
        assert not member.group.writes.takes_requests
        assert member.watched.told == []
        registered(member)
        ready, why = member.group.ready()
        assert (ready, "damaged from offset" in why) == (False, True)
        told: list[int] = []
        member.group.agent.hand_over = lambda effect, done: told.append(effect.target)  # type: ignore[method-assign, union-attr]
        follower(member, 1)
        await eventually(lambda: told == [2], "the other member is to take over")
        member.depose(3)
        assert member.watched.told == [], "what never began does not end"
        assert not member.group.failure.done()


async def test_alone_it_serves_what_stands_before_and_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "HELD_BACK_MS", 50)
    await rotten(tmp_path, 2)
    async with lone_member(tmp_path) as member:
        await member.elect(2)
        assert member.watched.told == ["began"]
        refusal = member.group.writes.accepting()
        assert isinstance(refusal, Refusal)
        assert (refusal.code, "is damaged" in refusal.remark) == (14, True)
        before = member.end
        member.send()
        assert (member.codes, member.end) == ([14], before)
        found, behind = read(member, 0), read(member, 2)
        assert getattr(found, "count", 0) == 2
        assert isinstance(behind, Refusal)
        assert "log offsets" in behind.remark
        registered(member)
        ready, why = member.group.ready()
        assert (ready, "takes no messages" in why) == (True, True)


async def test_it_serves_at_once_when_the_bytes_are_back(tmp_path: Path) -> None:
    path, start = await rotten(tmp_path, 2)
    async with lone_member(tmp_path) as member:
        member.learn(member.view(2))
        await eventually(lambda: member.core.serving is not None, "it is the master")
        assert not member.group.serving
        logs.flip(path, start + 60)
        log = member.group.store.log
        log.compare(start, log.end)
        await eventually(lambda: member.group.serving, "it serves")
        member.send()
        await eventually(lambda: member.codes == [0], "and takes messages")
        assert getattr(read(member, 0), "count", 0) == COUNT + 1


async def test_what_cannot_be_read_once_it_is_confirmed_is_not_acknowledged(
    tmp_path: Path,
) -> None:
    async with lone_member(tmp_path) as member:
        await member.elect(1, members=(1, 2), min_in_sync=2)
        member.hello(2, link=1)
        member.send()
        await member.flushed()
        log = member.group.store.log
        member.group.store._dispatcher.appended.forget()  # as for what is too much to keep
        path = log.locate(Offset(0))[0]
        logs.flip(path, 60)
        log.checks.forget(0, log.end)
        member.ack(1, member.end)
        assert member.codes == [12]
        assert not member.group.failure.done()
        assert member.group.writes.accepting() is not None


async def following(member: LoneMember, epoch: int) -> None:
    """It follows broker 2, whose log ends where its own does."""
    member.depose(epoch)
    await eventually(lambda: bool(member.links.opened), "it connects")
    link, facts = member.links.opened[-1], member.core.log
    member.group.step(ev.LinkOpened(link))
    entry = facts.lineage.last
    member.group.step(ev.Received(link, Truncate(Epoch(epoch), "of 2", facts.end, entry)))
    await eventually(lambda: bool(member.core.streaming), "it is attached")


async def test_what_the_master_has_trimmed_is_done_without(tmp_path: Path) -> None:
    """By the word of the master that it follows, and where nothing is derived from it yet."""
    async with lone_member(tmp_path) as member:
        await member.elect(1)
        while member.end < 3 * 64 * 1024:
            member.send(bytes(10_000))
            await member.flushed()
        path = member.group.store.log.locate(Offset(0))[0]
    shutil.rmtree(tmp_path / "store" / "kv")
    logs.flip(path, 60)
    async with lone_member(tmp_path) as member:
        store = member.group.store
        (damage,) = store.log.checks.damage.values()
        first, second, third = store.log.starts[:3]
        member.group._trimmed_by_the_master(damage, third)
        assert store.log.log_start == first, "nobody is followed yet"
        await following(member, 2)
        member.group._trimmed_by_the_master(damage, Offset(second - 1))
        assert store.log.log_start == first, "a part of its file is there"
        other = damage._replace(start=damage.end)
        member.group._trimmed_by_the_master(other, third)
        assert store.log.log_start == first, "this one hinders nothing"
        member.group._trimmed_by_the_master(damage, Offset(third + 1))
        assert store.log.log_start == third
        await eventually(member.group.failure.done, "its rows are to be made again")
        assert isinstance(member.group.failure.exception(), DerivedLostError)
