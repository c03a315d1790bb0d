"""Queue locks: who may be told that it owns a queue, and for how long nobody else may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from gantry_broker.clients import lock_keeping, locks
from gantry_broker.clients.claim import Claim
from gantry_broker.clients.lock_keeping import (
    CALL_TIMEOUT_S,
    FREE_GAP_S,
    GRANT_WAIT_S,
    RETRY_S,
    STOOD_STILL_S,
    SWEEP_EVERY_S,
    LockKeeper,
)
from gantry_broker.clients.locks import BELIEF_S, GONE_S, LOCK_S, QueueLocks
from gantry_protocol.bodies import MessageQueue
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import RequestTimeout
from gantry_protocol.types import BrokerId, Epoch
from support.group_view import NoControllers

FIRST = Claim(BrokerId(1), Epoch(1), "i1")
NEXT = Claim(BrokerId(2), Epoch(2), "i2")


def queues(*ids: int) -> list[MessageQueue]:
    return [MessageQueue("broker-a", queue_id, "T") for queue_id in ids]


# ---- the locks alone


class Table:
    """Locks of a master whose controllers take every report at once."""

    def __init__(self, *, by_quorum: bool = True, members: Iterable[str] = ()) -> None:
        self.now_s = 0.0
        self.members = set(members)
        self.locks = QueueLocks(lambda _, client: client in self.members, lambda: self.now_s)
        self.locks.by_quorum = by_quorum

    def take(self, client: str, *ids: int, group: str = "g", by: int = 1) -> list[int]:
        self.locks.lock(group, client, queues(*ids), by)
        self.report()
        return [queue.queue_id for queue in self.locks.owned(group, client, queues(*ids))]

    def report(self) -> None:
        while self.locks.has_news:
            self.locks.reported(self.locks.take_news(100))


@pytest.mark.parametrize("by_quorum", [True, False], ids=["by the quorum", "in memory"])
def test_locks_end_after_a_minute_without_renewal_and_belong_to_one_group(
    by_quorum: bool,
) -> None:
    table = Table(by_quorum=by_quorum, members=["c1", "c2"])
    assert table.take("c1", 0, 1) == [0, 1]
    assert table.take("c2", 0, group="h") == [0]
    table.now_s = 50
    assert table.take("c1", 0) == [0]
    table.now_s = 61
    assert table.take("c2", 0, 1) == [1]
    table.locks.unlock("g", "c2", queues(0, 1), 1)
    assert table.take("c3", 0, 1) == [1]


def test_locks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LOCKS_MAX", 2)
    table = Table()
    assert table.take("c1", 0, 1, 2) == [0, 1]
    assert table.take("c1", 1, 2) == [1], "renewing is always possible"
    table.now_s = 70
    assert table.take("c2", 2) == [2]
    assert table.take("x" * 1025, 3) == table.take("", 3) == []


def test_a_client_that_is_no_member_anywhere_loses_its_locks_once_it_cannot_believe_in_them() -> (
    None
):
    assert BELIEF_S < GONE_S < LOCK_S
    table = Table(members=["c1"])
    table.take("c1", 0)
    table.now_s = 1
    table.members.clear()
    table.now_s = GONE_S - 0.1
    assert table.take("c2", 0) == []
    table.now_s = GONE_S
    assert table.take("c2", 0) == [0]


def test_nothing_is_owned_that_the_controllers_do_not_surely_hold() -> None:
    table = Table().locks
    table.lock("g", "c1", queues(0), 1)
    assert table.owned("g", "c1", queues(0)) == []
    assert not table.is_decided("g", "c1", queues(0))
    assert table.is_decided("g", "c2", queues(0)), "it will not get it"
    news = table.take_news(100)
    assert news == {("g", queues(0)[0]): "c1"}
    assert table.owned("g", "c1", queues(0)) == []
    table.unreported(news, is_refused=False)
    assert table.take_news(100) == news, "told again, until it is known"
    table.reported(news)
    assert table.owned("g", "c1", queues(0)) == queues(0)
    table.lock("g", "c1", queues(0), 1)
    assert not table.has_news, "renewals are nobody else's business"


def test_a_queue_that_was_freed_and_taken_again_waits_for_the_report_under_way() -> None:
    """Else the controllers would hold it for nobody, and its owner believe in it."""
    table = Table()
    table.take("c1", 0)
    table.locks.unlock("g", "c1", queues(0), 1)
    free = table.locks.take_news(100)
    assert free == {("g", queues(0)[0]): ""}
    table.locks.lock("g", "c1", queues(0), 1)
    assert table.locks.owned("g", "c1", queues(0)) == []
    table.locks.reported(free)
    assert table.locks.owned("g", "c1", queues(0)) == []
    assert table.take("c1", 0) == [0]


def test_what_is_refused_is_owned_by_nobody() -> None:
    table = Table()
    table.locks.lock("g", "c1", queues(0), 1)
    table.locks.unreported(table.locks.take_news(100), is_refused=True)
    assert not table.locks.has_news
    assert table.locks.is_decided("g", "c1", queues(0))
    assert table.locks.owned("g", "c1", queues(0)) == []
    assert table.take("c2", 0) == [0]


def test_an_unlock_that_was_given_up_frees_nothing_that_was_locked_since() -> None:
    """It was sent by the client's connection before: its owner believes in the new lock."""
    table = Table()
    assert table.take("c1", 0, by=1) == table.take("c1", 0, by=2) == [0]
    table.locks.unlock("g", "c1", queues(0), 1)
    assert table.take("c2", 0, by=3) == []
    table.locks.unlock("g", "c1", queues(0), 2)
    assert table.take("c2", 0, by=3) == [0]


def test_nor_does_one_behind_a_lock_that_was_late_itself() -> None:
    table = Table()
    assert table.take("c1", 0, by=2) == table.take("c1", 0, by=1) == [0]
    for connection in 1, 2:
        table.locks.unlock("g", "c1", queues(0), connection)
    assert table.take("c2", 0, by=3) == []
    assert table.take("c1", 0, by=2) == [0]
    table.locks.unlock("g", "c1", queues(0), 2)
    assert table.take("c2", 0, by=3) == [0]


def test_what_the_last_master_granted_is_freed_once_its_owner_has_locked_it_here() -> None:
    """It may have locked it there by another connection, after this unlock."""
    table = Table(members=["c1"])
    table.locks.restore({("g", queues(0)[0]): "c1"})
    table.locks.unlock("g", "c1", queues(0), 1)
    assert table.take("c2", 0) == []
    assert table.take("c1", 0, by=1) == [0]
    table.locks.unlock("g", "c1", queues(0), 1)
    assert table.take("c2", 0) == [0]


# ---- between clients and controllers


class Controllers(NoControllers):
    """They keep the owners that they are told, as the real ones do.

    Attributes:
        mute: questions stay unanswered, and have no effect yet.
        refuse: how they answer reports instead of taking them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.owners: dict[tuple[str, int], str] = {}
        self.epoch = self.serial = 0
        self.mute = False
        self.refuse: ResponseCode | None = None
        self.reports: list[dict[str, Any]] = []

    def ask(self, command: RemotingCommand, done: Any, timeout_s: float) -> None:
        super().ask(command, done, timeout_s)
        if not self.mute:
            done(self.answer(command))

    def answer(self, command: RemotingCommand) -> RemotingCommand:
        """Take the command now."""
        if command.code == RequestCode.GANTRY_GET_LOCKS:
            groups: dict[str, list[dict[str, Any]]] = {}
            for (group, queue_id), client in self.owners.items():
                owner = {"topic": "T", "queueId": queue_id, "clientId": client}
                groups.setdefault(group, []).append(owner)
            body = {"groups": groups, "epoch": self.epoch, "serial": self.serial}
            return reply(command, body=json.dumps(body).encode())
        if self.refuse is not None:
            return reply(command, self.refuse, "no")
        assert command.ext is not None
        at = int(command.ext["masterEpoch"]), int(command.ext["serial"])
        if at <= (self.epoch, self.serial):
            return reply(command, ResponseCode.INVALID_PARAMETER, "overtaken")
        self.epoch, self.serial = at
        report = json.loads(command.body)["groups"]
        self.reports.append(report)
        for group, items in report.items():
            for item in items:
                self.owners[group, item["queueId"]] = item["clientId"]
        self.owners = {place: client for place, client in self.owners.items() if client}
        return reply(command)


class Master:
    """One mastership."""

    def __init__(self, controllers: NoControllers, claim: Claim = FIRST) -> None:
        self.members = {"a", "b"}
        self.keeper = LockKeeper(
            "c", "broker-a", controllers, lambda _, client: client in self.members
        )
        self.keeper.began(claim)

    def ask(self, client: str, *ids: int) -> list[list[int]]:
        """What the client is told is appended to the list; nothing as long as it waits."""
        told: list[list[int]] = []
        self.keeper.lock(
            "g",
            client,
            queues(*ids),
            1,
            lambda owned: told.append([queue.queue_id for queue in owned]),
        )
        return told

    async def take(self, client: str, *ids: int) -> list[int]:
        told = self.ask(client, *ids)
        await asyncio.sleep(0.01)
        assert len(told) == 1
        return told[0]


@pytest.mark.looptime
async def test_a_new_owner_is_told_once_the_controllers_know_it() -> None:
    controllers = Controllers()
    master = Master(controllers)
    controllers.mute = True
    told = [master.ask("a", 0, 1), master.ask("b", 1, 2)]
    await asyncio.sleep(0.01)
    assert told == [[], []]
    command, done = controllers.asked[-1]
    done(controllers.answer(command))
    assert told == [[[0, 1]], [[2]]]
    assert len(controllers.reports) == 1, "one report for all that came meanwhile"
    assert master.ask("a", 0, 1) == [[0, 1]], "renewals wait for nobody"
    assert len(controllers.asked) == 2


@pytest.mark.looptime
async def test_a_client_does_not_wait_longer_than_it_would() -> None:
    controllers = Controllers()
    master = Master(controllers)
    assert await master.take("a", 0) == [0]
    controllers.mute = True
    told = master.ask("a", 0, 1)
    await asyncio.sleep(GRANT_WAIT_S / 2)
    later = master.ask("b", 2)
    await asyncio.sleep(GRANT_WAIT_S / 2 + 0.01)
    assert (told, later) == ([[0]], [])
    await asyncio.sleep(GRANT_WAIT_S / 2)
    assert later == [[]]
    for command, done in list(controllers.asked):
        if command.code == RequestCode.GANTRY_REPORT_LOCKS and not done_before(
            controllers, command
        ):
            done(controllers.answer(command))
    assert master.ask("a", 0, 1) == [[0, 1]], "when it asks again, it is known"


def done_before(controllers: Controllers, command: RemotingCommand) -> bool:
    assert command.ext is not None
    return int(command.ext["serial"]) <= controllers.serial


@pytest.mark.looptime
async def test_the_next_master_honours_what_was_granted_for_as_long_as_it_may_be_believed() -> None:
    controllers = Controllers()
    first = Master(controllers)
    assert await first.take("a", 0) == [0]
    await asyncio.sleep(LOCK_S - 10)
    assert first.ask("a", 0) == [[0]]
    first.keeper.end()
    second = Master(controllers, NEXT)
    assert second.ask("b", 0) == [[]]
    assert second.ask("a", 0) == [[0]], "it goes on at once"
    await asyncio.sleep(LOCK_S - 0.1)
    assert second.ask("b", 0) == [[]]
    await asyncio.sleep(0.2)
    assert await second.take("b", 0) == [0]
    assert controllers.owners == {("g", 0): "b"}


@pytest.mark.looptime
async def test_nothing_is_granted_before_the_last_masters_owners_are_known() -> None:
    controllers = Controllers()
    controllers.owners = {("g", 0): "a"}
    controllers.mute = True
    master = Master(controllers)
    assert master.ask("b", 0) == [[]]
    controllers.asked[0][1](RequestTimeout("no answer"))
    await asyncio.sleep(RETRY_S + 0.01)
    command, done = controllers.asked[-1]
    assert command.code == RequestCode.GANTRY_GET_LOCKS
    done(controllers.answer(command))
    controllers.mute = False
    assert await master.take("b", 0) == []
    assert await master.take("a", 0) == [0]


@pytest.mark.looptime
async def test_a_report_that_was_given_up_cannot_overtake_its_successor() -> None:
    controllers = Controllers()
    master = Master(controllers)
    controllers.mute = True
    told = master.ask("a", 0)
    await asyncio.sleep(0.01)
    lost, done = controllers.asked[-1]
    done(RequestTimeout("no answer"))
    master.keeper.unlock("g", "a", queues(0), 1)
    controllers.mute = False
    assert await asyncio.wait_for(asked_until_owned(master, "b", 0), 5)
    assert told in ([], [[]])
    assert controllers.answer(lost).code == ResponseCode.INVALID_PARAMETER
    assert controllers.owners == {("g", 0): "b"}


async def asked_until_owned(master: Master, client: str, queue_id: int) -> bool:
    while True:
        told = master.ask(client, queue_id)
        await asyncio.sleep(GRANT_WAIT_S + 0.1)
        if told == [[queue_id]]:
            return True


@pytest.mark.looptime
async def test_controllers_that_do_not_answer_are_not_asked_more_often_for_it() -> None:
    controllers = Controllers()
    master = Master(controllers)
    controllers.refuse = ResponseCode.CONTROLLER_NOT_LEADER
    for _ in range(100):
        master.ask("a", 0)
        await asyncio.sleep(0.01)
    assert len(controllers.asked) - 1 <= 1 + 1 / RETRY_S
    controllers.refuse = None
    await asyncio.sleep(RETRY_S)
    assert master.ask("a", 0) == [[0]]


@pytest.mark.looptime
async def test_what_was_unlocked_or_is_over_is_reported_too() -> None:
    controllers = Controllers()
    master = Master(controllers)
    await master.take("a", 0, 1, 2)
    master.keeper.unlock("g", "a", queues(0), 1)
    assert controllers.owners.keys() == {("g", 0), ("g", 1), ("g", 2)}
    await asyncio.sleep(FREE_GAP_S + 0.01)
    assert controllers.owners.keys() == {("g", 1), ("g", 2)}
    await asyncio.sleep(LOCK_S / 2)
    assert master.ask("a", 1) == [[1]]
    await asyncio.sleep(LOCK_S / 2 + SWEEP_EVERY_S + FREE_GAP_S)
    assert controllers.owners == {("g", 1): "a"}
    assert master.keeper.reports == len(controllers.reports) == 3


@pytest.mark.looptime
async def test_who_stood_still_tells_nobody_anything_before_it_has_looked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it reads first was sent to the master that it was before."""
    controllers = Controllers()
    master = Master(controllers)
    assert await master.take("a", 0) == [0]
    now_s = asyncio.get_running_loop().time()
    with monkeypatch.context() as patched:
        patched.setattr(lock_keeping, "_now_s", lambda: now_s + STOOD_STILL_S + 1)
        assert master.ask("a", 0) == [[]]
    await asyncio.sleep(10)
    assert master.ask("a", 0) == [[0]]


@pytest.mark.looptime
async def test_controllers_of_another_make_keep_no_locks() -> None:
    class Others(NoControllers):
        def ask(self, command: RemotingCommand, done: Any, timeout_s: float) -> None:
            super().ask(command, done, timeout_s)
            done(reply(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no"))

    controllers = Others()
    master = Master(controllers)
    assert master.ask("a", 0) == [[0]]
    assert master.ask("b", 0) == [[]]
    await asyncio.sleep(CALL_TIMEOUT_S)
    assert len(controllers.asked) == 1


@pytest.mark.looptime
async def test_who_goes_on_in_the_same_mastership_goes_on_counting() -> None:
    controllers = Controllers()
    first = Master(controllers)
    await first.take("a", 0)
    await first.take("a", 1)
    first.keeper.end()
    second = Master(controllers)
    assert await second.take("b", 2) == [2]
