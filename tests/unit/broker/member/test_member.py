"""A whole member around its core: what is answered, ended, told and kept when things change."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from gantry_broker.clients.core.pop.records import POP_TOPIC
from gantry_broker.clients.core.transactions.records import HALF_TOPIC
from gantry_broker.control.joining import IdStruck
from gantry_broker.log import DiskFullError, LogFailedError
from gantry_broker.log.checked import Damage
from gantry_broker.log.segments import Segments
from gantry_broker.member import lineage_file
from gantry_broker.replica import Role
from gantry_broker.replica import events as ev
from gantry_broker.replica import master as mastership
from gantry_broker.replica.messages import Ack, Farewell, Hello, Truncate
from gantry_broker.store.contract import Refusal, SendOutcome
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import reply
from gantry_protocol.errors import CorruptionError
from gantry_protocol.records import BLANK_MAGIC, MessageRecord
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.broker_cluster import eventually
from support.lone_member import LoneMember, lone_member
from support.stores import message
from support.tier_logs import Sent, build_log


@pytest.fixture
async def member(tmp_path: Path) -> AsyncIterator[LoneMember]:
    async with lone_member(tmp_path) as made:
        yield made


class Uploader:
    """What a tier's uploader is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def promoted(self, _: object) -> None:
        self.told.append("promoted")

    def demoted(self) -> None:
        self.told.append("demoted")

    def advanced(self) -> None:
        self.told.append("advanced")


def tier_of(member: LoneMember) -> Uploader:
    """A tier that only writes down what it is told."""

    async def stop() -> None: ...

    uploader = Uploader()
    service: Any = SimpleNamespace(uploader=uploader, stop=stop)
    member.group.tier.follow(service)
    return uploader


async def pair(member: LoneMember) -> None:
    """Master of two, of which two must have a record."""
    await member.elect(1, members=(1, 2), min_in_sync=2)
    member.hello(2, link=1)


# ---- what a send is answered


async def test_a_send_is_acknowledged_once_the_set_has_it(member: LoneMember) -> None:
    await pair(member)
    member.send()
    first = member.end
    member.send()
    await member.flushed()
    assert member.codes == []
    member.ack(1, first)
    assert member.codes == [0]
    member.ack(1, member.end)
    assert member.codes == [0, 0]


async def test_what_only_the_master_has_is_not_acknowledged_where_two_must(
    member: LoneMember,
) -> None:
    """The set shrinks while a send waits: what is left of it confirms, and is too few (H11)."""
    await pair(member)
    member.send()
    await member.flushed()
    member.learn(member.view(1, members=(1,), min_in_sync=2))
    assert member.core.log.confirm == member.end
    assert member.codes == [12]
    refusal = member.group.writes.accepting()
    assert refusal is not None
    assert "not enough" in refusal.remark


async def test_the_end_of_a_mastership_ends_what_belongs_to_it(member: LoneMember) -> None:
    uploader = tier_of(member)
    await pair(member)
    member.send()
    member.send()
    member.depose(2)
    assert member.codes == [12, 12], "at once: nobody here knows any longer what becomes of them"
    assert uploader.told == ["promoted", "demoted"]
    assert member.watched.told == ["began", "ends"]
    assert not member.group.serving
    member.send()
    assert member.codes == [12, 12, 14]
    await member.elect(3)
    await member.flushed()
    assert member.codes == [12, 12, 14], "nobody is answered twice"


async def test_a_master_whose_disk_does_not_answer_takes_no_write(member: LoneMember) -> None:
    await pair(member)
    assert member.group.writes.accepting() is None
    member.core.serving.disk_is_silent = True
    refusal = member.group.writes.accepting()
    assert isinstance(refusal, Refusal)
    assert (refusal.code, "disk does not answer" in refusal.remark) == (14, True)


async def test_the_tier_is_told_of_what_is_confirmed(member: LoneMember) -> None:
    uploader = tier_of(member)
    await member.elect(1)
    member.send()
    await eventually(lambda: member.codes == [0], "it is confirmed")
    assert uploader.told[:1] == ["promoted"]
    assert "advanced" in uploader.told


async def test_the_end_of_a_member_answers_who_waits(member: LoneMember) -> None:
    await pair(member)
    member.send()
    await member.stop()
    assert member.codes == [12]


# ---- a replica's log


DATA = build_log(0, [Sent("t", 0, b"x" * 100)])


async def test_bytes_that_were_not_written_are_asked_for_again(
    member: LoneMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core must hear of it: it believes else that they are in the log."""
    link = await member.follow(1)

    def full(*_: object) -> None:
        raise DiskFullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(member.group.store.log, "append_raw", full)
        member.feed(link, 1, DATA)
    assert link in member.links.closed
    assert (member.core.log.end, member.end) == (0, 0)
    member.core._now_ms += 10_000
    member.group.step(ev.Tick())
    assert member.links.opened[-1] != link, "it connects again"


async def test_a_replica_acknowledges_what_is_on_its_disk_and_nothing_else(
    member: LoneMember,
) -> None:
    link = await member.follow(1)
    member.feed(link, 1, DATA)
    acks = [message.flushed_end for _, message in member.links.sent if isinstance(message, Ack)]
    assert acks[-1] == 0, "written, and not flushed"
    await member.flushed()
    acks = [message.flushed_end for _, message in member.links.sent if isinstance(message, Ack)]
    assert acks[-1] == len(DATA)


async def test_a_promotion_is_durable_before_anybody_is_served(member: LoneMember) -> None:
    await member.elect(4)
    assert member.core.role is Role.MASTER
    kept = lineage_file.load(member.group.options.directory)
    assert (kept.epoch, kept.lineage.last_epoch) == (4, 4)


# ---- the log's beginning


async def test_the_log_stays_from_where_on_a_replica_reads_it(member: LoneMember) -> None:
    await member.elect(1)
    for _ in range(8):
        member.send(bytes(30_000))
    await eventually(lambda: len(member.codes) == 8, "all are confirmed")
    assert len(member.group.store.log.starts) > 3
    member.links.is_congested = lambda _: True  # type: ignore[method-assign]  # a slow replica
    member.hello(2, link=1)
    assert Offset(0) in member.group.tier.pins().offsets
    assert await trimmed(member) is None
    assert member.group.store.log.log_start == 0
    member.links.is_congested = lambda _: False  # type: ignore[method-assign]
    member.group._writable()
    replica = member.core.master.members[2]
    await eventually(lambda: replica.sent > member.group.store.log.starts[-2], "it is sent more")
    assert await trimmed(member) is None
    assert member.group.store.log.log_start > 0


@pytest.mark.parametrize(
    ("topic", "who"),
    [(POP_TOPIC, "messages in flight"), (HALF_TOPIC, "an open transaction")],
)
async def test_the_log_stays_for_what_the_next_master_reads(
    member: LoneMember, topic: str, who: str
) -> None:
    await member.elect(1)
    done: list[SendOutcome] = []
    member.group.view.store.append([MessageRecord(topic=topic, body=b"{}")], done.append)
    await eventually(lambda: bool(done), "it is confirmed")
    assert who in {need.who for need in member.group.tier.pins().needed}


async def trimmed(member: LoneMember) -> Refusal | None:
    said: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
    member.group.view.store.trim(Offset(member.end), said.set_result)
    return await said


# ---- the disk, and what waits for it


def holding(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """States are saved once the event is set."""
    may_save, save = threading.Event(), lineage_file.save

    def wait(*args: Any) -> None:
        may_save.wait(10)
        save(*args)

    monkeypatch.setattr(lineage_file, "save", wait)
    return may_save


async def test_nobody_is_served_before_the_epoch_is_on_the_disk(
    member: LoneMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_save = holding(monkeypatch)
    member.learn(member.view(1))
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert not member.group.serving
    may_save.set()
    await eventually(lambda: member.group.serving, "it serves")


async def test_a_stop_keeps_the_state_that_is_being_saved(
    member: LoneMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_save = holding(monkeypatch)
    member.learn(member.view(3))
    threading.Timer(0.1, may_save.set).start()
    await member.stop()
    assert lineage_file.load(member.group.options.directory).epoch == 3


async def test_a_state_that_cannot_be_saved_ends_the_member(
    member: LoneMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "no disk")

    with monkeypatch.context() as patch:
        patch.setattr(lineage_file, "save", fail)
        member.learn(member.view(1))
        await eventually(member.group.failure.done, "it ends")
    assert not member.group.serving
    assert "no disk" in str(member.group.failure.exception())


async def test_a_store_that_refuses_ends_the_member(
    member: LoneMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair(member)
    member.send()
    await member.flushed()

    def damaged(_: object) -> None:
        raise CorruptionError(Path("x"), 0, "damaged")

    monkeypatch.setattr(member.group.store, "dispatch", damaged)
    member.ack(1, member.end)
    assert member.codes == [], "nothing is acknowledged that cannot be read"
    assert isinstance(member.group.failure.exception(), CorruptionError)


async def test_who_is_acknowledged_finds_its_record(member: LoneMember) -> None:
    await pair(member)
    seen: list[int] = []
    member.group.writes.append(
        [message()], lambda outcome: seen.append(member.group.store.dispatched)
    )
    await member.flushed()
    member.ack(1, member.end)
    assert seen == [member.end]


async def test_a_wait_has_an_end(member: LoneMember, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mastership, "REPLICATION_TIMEOUT_MS", 50)
    await pair(member)
    member.send()
    await eventually(lambda: member.codes == [12], "it is answered")


# ---- roles


async def test_the_store_is_the_masters_while_clients_are_served(member: LoneMember) -> None:
    store, told = member.group.store, member.watched.told
    masters: list[bool] = []
    member.watched.serving_began = lambda: masters.append(store.is_master)  # type: ignore[method-assign]
    await member.elect(1)
    member.depose(2)
    assert (masters, store.is_master, told) == ([True], False, ["ends"])


async def test_a_demotion_sends_pulls_back_and_ends_reports(
    member: LoneMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    await member.elect(1)
    monkeypatch.setattr(member.group.view.store, "end", lambda: ended.append("pulls"))
    monkeypatch.setattr(member.group.consumers, "end", lambda: ended.append("reports"))
    member.depose(2)
    assert ended == ["pulls", "reports"]
    monkeypatch.undo()


async def test_who_waits_for_a_topic_is_told_of_the_end(member: LoneMember) -> None:
    await member.elect(1)
    refusals: list[Refusal | None] = []
    member.group.writes.create_topic(TopicConfig("t"), refusals.append, if_absent=True)
    command, done = member.line.asked[-1]
    done(reply(command, ext={"topicsVersion": "7"}))  # the controllers have it; the log does not
    assert refusals == []
    member.depose(2)
    assert [one and one.code for one in refusals] == [14]


async def test_a_master_reads_the_topics_that_controllers_name(member: LoneMember) -> None:
    await member.elect(1)
    agent = member.group.agent
    assert agent is not None
    agent.known = msgspec.structs.replace(agent.known, topics_version=3)
    member.group._learned(member.view(1))
    assert member.line.asked[-1][0].code == RequestCode.GET_ALL_TOPIC_CONFIG


async def test_who_leaves_says_so(member: LoneMember) -> None:
    await pair(member)
    assert not member.group._report().draining
    member.group.leave()
    assert member.group._report().draining
    refusal = member.group.writes.accepting()
    assert refusal is not None
    assert "handing its mastership over" in refusal.remark


async def test_who_calls_too_early_is_sent_away(tmp_path: Path) -> None:
    async with lone_member(tmp_path) as member:
        member.group._too_early(ev.Received(3, Ack(Epoch(1), Offset(0))))
        assert member.links.closed == [3], "it calls again, when there is somebody"


async def test_a_batch_is_acknowledged_with_its_last_record(member: LoneMember) -> None:
    await pair(member)
    codes: list[int] = []
    outcome = codes.append
    member.group.writes.append([message(), message()], lambda one: outcome(one.code))
    await member.flushed()
    member.ack(1, member.end // 2)
    assert codes == []
    member.ack(1, member.end)
    assert codes == [0]


async def test_topics_are_read_once_the_whole_state_is_known(
    member: LoneMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of a table is compared with nothing: the rest would look deleted."""
    asked = [RequestCode.GET_ALL_TOPIC_CONFIG]
    await member.elect(1)
    agent = member.group.agent
    assert agent is not None
    agent.known = msgspec.structs.replace(agent.known, topics_version=3)
    with monkeypatch.context() as patch:
        patch.setattr(type(member.group.store), "is_whole", property(lambda _: False))
        member.group._learned(member.view(1))
        assert [one for one, _ in member.line.asked if one.code in asked] == []
    await eventually(
        lambda: [one.code for one, _ in member.line.asked if one.code in asked] == asked,
        "they are read",
    )


# ---- what does not fit the log


async def test_a_part_of_a_record_is_not_acknowledged(member: LoneMember) -> None:
    """What a replica confirms is read as whole records: its link ends, and the master goes on."""
    await pair(member)
    member.send()
    first = member.end
    member.send()
    await member.flushed()
    for link, torn in enumerate((1, first - 1, first + 1, first + 36, member.end - 1), start=1):
        member.ack(link, torn)
        assert member.links.closed[-1] == link, torn
        said = member.links.sent[-1][1]
        assert isinstance(said, Farewell), torn
        assert "inside a record" in said.reason
        assert member.group.serving, torn
        member.hello(2, link + 1)
        await eventually(lambda: member.core.serving.members[2].sent == member.end, "it is fed")
    assert not member.group.failure.done()
    assert member.codes == []
    member.ack(link + 1, first)
    assert member.codes == [0]
    member.ack(link + 1, member.end)
    assert member.codes == [0, 0]


async def test_a_replica_whose_log_ends_in_a_record_is_sent_away(member: LoneMember) -> None:
    """Bytes are read from there on, and would be found damaged."""
    await pair(member)
    member.send()
    await member.flushed()
    hello = Hello(
        epoch=member.core.epoch,
        broker_id=BrokerId(2),
        incarnation="x",
        log_start=Offset(0),
        end=Offset(member.end - 1),
        lineage=member.core.log.lineage.entries,
        draining=False,
    )
    member.group.step(ev.Received(2, hello))
    member.ack(2, member.end - 1)
    for _ in range(3):  # what it would be fed is read
        await asyncio.sleep(0)
    assert not member.group.failure.done()
    assert set(member.links.closed) == {1, 2}, "its first link, and the one it opened instead"
    assert not any(link == 2 and isinstance(one, Truncate) for link, one in member.links.sent)


async def test_a_blank_is_acknowledged_as_records_are(member: LoneMember) -> None:
    """A file ends in a blank, and the next one begins where a replica may well stop."""
    await pair(member)
    while len(member.group.store.log.starts) < 2:
        member.send(b"x" * 20_000)
    await member.flushed()
    (start,) = member.group.store.log.starts[1:]
    records = [at for at, _ in units_of(member)]
    assert member.group.store.log.read(Offset(max(at for at in records if at < start)), 8)[4:] == (
        BLANK_MAGIC.to_bytes(4, "big")
    )
    replica = member.core.serving.members[2]
    for boundary in (*records[1:], member.end):
        await eventually(lambda upto=boundary: replica.sent >= upto, "it is fed")
        member.ack(1, boundary)
    assert member.links.closed == []
    assert set(member.codes) == {0}


def units_of(member: LoneMember) -> list[tuple[int, object]]:
    log, found, at = member.group.store.log, [], 0
    while at < log.end:
        data = log.read_units(Offset(at), 1)
        found.append((at, data))
        at += len(data)
    return found


async def test_a_master_with_damage_asks_for_its_repair_and_gives_way(member: LoneMember) -> None:
    await pair(member)
    member.send()
    await member.flushed()
    member.ack(1, member.end)
    await eventually(lambda: not member.group.repairs._found.is_set(), "nothing is to be repaired")
    member.group._damaged(Damage(Path("0"), 0, 0, 100, 1, "it is not what it was"))
    assert member.group.repairs._found.is_set()
    assert member.core._damage.is_due, "who could take over is looked for"


async def test_a_group_that_has_ended_takes_no_replica(member: LoneMember) -> None:
    hosts = member.group._shared.listener._hosts
    assert len(hosts) == 1
    await member.stop()
    assert len(hosts) == 0


async def test_the_end_of_a_file_is_known_although_the_next_one_finds_no_room(
    member: LoneMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blank nobody knows of would pass for bytes of the next epoch."""
    await pair(member)
    while member.end < 60_000:
        member.send(b"x" * 20_000)
    before = member.end

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Segments, "add", full)
        with pytest.raises(DiskFullError):
            member.send(b"x" * 20_000)
    assert member.end > before, "the file was ended"
    assert member.core.log.end == member.end


async def test_a_batch_that_meets_a_full_disk_in_its_midst_ends_the_member(
    member: LoneMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of it is written. A master that stayed would refuse all that comes after it."""
    await pair(member)
    member.send()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Segments, "add", full)
    member.send(b"x" * 20_000, count=4)
    assert isinstance(member.group.failure.exception(), LogFailedError)
    assert member.codes[-1:] == [ResponseCode.FLUSH_SLAVE_TIMEOUT], "it may be stored"


async def test_who_is_given_another_id_is_not_said_to_end(
    member: LoneMember, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "gantry"):
        member.group._fail(IdStruck("broker 1 was struck"))
    (record,) = caplog.records
    assert isinstance(member.group.failure.exception(), IdStruck)
    assert record.levelno == logging.WARNING
    assert "begins anew" in record.getMessage()
