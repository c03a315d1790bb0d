"""Owners of mapped queues that have come to a broker group: read before anybody else gets them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from gantry_broker.clients import lock_keeping
from gantry_broker.clients.claim import Claim
from gantry_broker.clients.lock_keeping import GRANT_WAIT_S, RETRY_S, LockKeeper
from gantry_broker.clients.locks import LOCK_S, QueueLocks
from gantry_protocol.bodies import MessageQueue
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import RequestTimeout
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX
from gantry_protocol.types import BrokerId, Epoch

GROUP = "broker-a"
READ, REPORT = RequestCode.GANTRY_GET_LOCKS, RequestCode.GANTRY_REPORT_LOCKS
CAME = MAPPED_QUEUES_MAX

pytestmark = pytest.mark.looptime


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(GROUP, queue_id, "T")


class Controllers:
    """They keep owners by queue, and answer what is not held back.

    Attributes:
        asked: codes of all requests.
        held: answers to those that wait.
    """

    def __init__(self, **owners: str) -> None:
        self.owners = {int(name[1:]): client for name, client in owners.items()}
        self.asked: list[int] = []
        self.holds: set[int] = set()
        self.held: list[Callable[[], None]] = []
        self.fails = False

    def ask(self, command: RemotingCommand, done: Any, timeout_s: float) -> None:
        self.asked.append(command.code)
        if self.fails:
            done(RequestTimeout("no answer"))
        elif command.code in self.holds:
            self.held.append(lambda: done(self.answer(command)))
        else:
            done(self.answer(command))

    def answer(self, command: RemotingCommand) -> RemotingCommand:
        if command.code == READ:
            items = [
                {"topic": "T", "queueId": queue_id, "clientId": client}
                for queue_id, client in self.owners.items()
            ]
            return reply(command, body=json.dumps({"groups": {"g": items}}).encode())
        for item in json.loads(command.body)["groups"]["g"]:
            self.owners[item["queueId"]] = item["clientId"]
        return reply(command)

    def release(self) -> None:
        self.held.pop(0)()


class Master:
    """One mastership that has read its owners."""

    def __init__(self, controllers: Any) -> None:
        self.keeper = LockKeeper("c", GROUP, controllers, lambda _, client: True)
        self.keeper.began(Claim(BrokerId(1), Epoch(1), "i"))

    def ask(self, client: str, *ids: int) -> list[list[int]]:
        told: list[list[int]] = []
        self.keeper.lock(
            "g",
            client,
            [queue(queue_id) for queue_id in ids],
            1,
            lambda owned: told.append([item.queue_id for item in owned]),
        )
        return told


async def test_who_owned_a_queue_where_it_was_owns_it_here() -> None:
    controllers = Controllers()
    master = Master(controllers)
    assert not master.keeper.knows(queue(CAME))
    controllers.owners = {CAME: "x", CAME + 1: "not asked about"}
    controllers.holds = {READ}
    master.keeper.learn([queue(CAME)])
    assert not master.keeper.knows(queue(CAME))
    controllers.release()
    assert master.keeper.knows(queue(CAME))
    assert not master.keeper.knows(queue(CAME + 1))
    assert master.ask("y", CAME) == [[]]
    assert master.ask("x", CAME) == [[CAME]], "the controllers hold it already"
    await asyncio.sleep(LOCK_S - 0.1)
    assert master.ask("y", CAME) == [[]]
    await asyncio.sleep(0.2)
    told = master.ask("y", CAME)
    await asyncio.sleep(0.01)
    assert told == [[CAME]]
    assert controllers.owners[CAME] == "y"


async def test_a_later_stay_of_the_same_queue_is_another_queue() -> None:
    controllers = Controllers()
    master = Master(controllers)
    master.keeper.learn([queue(CAME)])
    assert master.keeper.knows(queue(CAME))
    master.keeper.learn([queue(3 * CAME)])
    assert master.keeper.knows(queue(3 * CAME))
    assert not master.keeper.knows(queue(CAME))


async def test_what_came_before_the_first_reading_is_read_once_more() -> None:
    """The queue may have come after what was read."""
    controllers = Controllers()
    controllers.holds = {READ}
    master = Master(controllers)
    master.keeper.learn([queue(CAME)])
    assert controllers.asked == [READ]
    controllers.release()
    assert not master.keeper.knows(queue(CAME))
    assert controllers.asked == [READ, READ]
    controllers.owners[CAME] = "x"
    controllers.release()
    assert master.ask("y", CAME) == [[]]


async def test_a_reading_waits_for_the_report_under_way() -> None:
    """Else it may say what the report has changed since."""
    controllers = Controllers()
    master = Master(controllers)
    controllers.holds = {REPORT}
    told = master.ask("a", 0)
    await asyncio.sleep(0.01)
    master.keeper.learn([queue(CAME)])
    await asyncio.sleep(0.01)
    assert controllers.asked == [READ, REPORT]
    controllers.release()
    assert told == [[0]]
    assert controllers.asked == [READ, REPORT, READ]
    assert master.keeper.knows(queue(CAME))


async def test_a_report_waits_for_the_reading_under_way() -> None:
    controllers = Controllers()
    master = Master(controllers)
    master.ask("a", 0)
    controllers.holds = {READ}
    master.keeper.learn([queue(CAME)])
    told = master.ask("a", 1)
    await asyncio.sleep(0.01)
    assert controllers.asked == [READ, READ]
    controllers.release()
    await asyncio.sleep(0.01)
    assert controllers.asked[2:] == [REPORT]
    assert told == [[1]]


async def test_a_reading_that_failed_is_repeated_and_reports_go_on() -> None:
    controllers = Controllers()
    master = Master(controllers)
    controllers.fails = True
    master.keeper.learn([queue(CAME)])
    assert controllers.asked == [READ, READ]
    controllers.fails = False
    told = master.ask("a", 0)
    await asyncio.sleep(0.01)
    assert told == [[0]]
    master.keeper.learn([queue(CAME)])
    assert controllers.asked == [READ, READ, REPORT], "not sooner than it is due"
    await asyncio.sleep(RETRY_S)
    assert master.keeper.knows(queue(CAME))


async def test_what_is_remembered_as_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_keeping, "LEARNED_MAX", 2)
    master = Master(Controllers())
    for number in range(3):
        master.keeper.learn([queue(CAME + number)])
    known = [master.keeper.knows(queue(CAME + number)) for number in range(3)]
    assert known == [False, False, True]


async def test_a_past_mastership_learns_nothing() -> None:
    controllers = Controllers()
    master = Master(controllers)
    controllers.holds = {READ}
    master.keeper.learn([queue(CAME)])
    master.keeper.end()
    controllers.release()
    master.keeper.learn([queue(CAME)])
    assert not master.keeper.knows(queue(CAME))
    assert controllers.asked == [READ, READ]


async def test_controllers_of_another_make_know_no_maps() -> None:
    class Others(Controllers):
        def answer(self, command: RemotingCommand) -> RemotingCommand:
            return reply(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no")

    master = Master(Others())
    assert master.keeper.knows(queue(CAME))
    assert master.ask("a", CAME) == [[CAME]]
    await asyncio.sleep(GRANT_WAIT_S)


def test_what_was_owned_or_freed_here_is_known_better() -> None:
    table = QueueLocks(lambda group, client: True, lambda: 0.0)
    table.restore({("g", queue(CAME)): "x", ("g", queue(CAME + 1)): "x"})
    table.lock("g", "x", [queue(CAME + 1)], 1)
    table.unlock("g", "x", [queue(CAME + 1)], 1)
    stale = {("g", queue(CAME + number)): "z" for number in range(3)}
    table.adopt(stale)
    table.lock("g", "y", [queue(CAME + 1)], 1)
    news = table.take_news(10)
    assert news == {("g", queue(CAME + 1)): "y"}
    table.reported(news)
    owned = {
        client: [item.queue_id - CAME for item in table.owned("g", client, map(queue, ids))]
        for client in "xyz"
        for ids in [range(CAME, CAME + 3)]
    }
    assert owned == {"x": [0], "y": [1], "z": [2]}
