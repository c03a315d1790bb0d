"""Modes of consumer groups, and queues that the broker shares out: 400, 401, 402."""

from __future__ import annotations

import asyncio
import json

import pytest
from gantry_broker.clients.core.pop.assignment import AssignmentQuestion, shares
from gantry_broker.clients.core.pop.records import ModeSet
from gantry_protocol.bodies import MessageQueue
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from support.group_view import FakeGroup
from support.pops import GROUP, TOPIC, Consumer

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


def set_mode(mode: str, share: int = 0, topic: str = TOPIC) -> bytes:
    return encode_body(
        {"topic": topic, "consumerGroup": GROUP, "mode": mode, "popShareQueueNum": share}
    )


def question(client_id: str, strategy: str = "AVG") -> bytes:
    return encode_body(
        {
            "topic": TOPIC,
            "consumerGroup": GROUP,
            "clientId": client_id,
            "strategyName": strategy,
            "messageModel": "CLUSTERING",
        }
    )


def assigned(answer: RemotingCommand) -> list[tuple[int, str]]:
    found = json.loads(answer.body).get("messageQueueAssignments", [])
    return [(item["messageQueue"]["queueId"], item["mode"]) for item in found]


@pytest.mark.parametrize(
    ("mode", "topic", "code"),
    [
        ("PULL", TOPIC, 0),
        ("POP", TOPIC, 0),
        ("PUSH", TOPIC, ResponseCode.INVALID_PARAMETER),
        ("POP", "Nope", ResponseCode.TOPIC_NOT_EXIST),
        ("POP", "%RETRY%g", ResponseCode.NO_PERMISSION),
    ],
)
async def test_the_mode_of_a_group_is_set(serve, group, mode: str, topic: str, code: int) -> None:
    consumer = Consumer(serve())
    assert (await consumer.answer(401, None, set_mode(mode, topic=topic))).code == code


async def test_the_next_master_knows_the_mode(serve, group) -> None:
    consumer = Consumer(serve())
    await consumer.answer(401, None, set_mode("POP", 2))
    consumer = Consumer(serve())
    await asyncio.sleep(0.1)
    told = json.loads(consumer.call(402).body)["messageRequestModeMap"]
    assert told[TOPIC][GROUP] == {
        "topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 2,
    }  # fmt: skip


def know_masters(group: FakeGroup) -> None:
    """The maps were read: there are two broker groups."""
    group.queues.maps._listeners["broker-a"] = lambda topics: None
    group.queues.maps.masters = {"broker-a": "127.0.0.1:1", "broker-b": "127.0.0.1:2"}


async def test_members_of_a_group_that_pops_get_any_queue_of_all_groups(serve, group) -> None:
    consumer = Consumer(serve())
    know_masters(group)
    join(consumer, "c1")
    assert assigned(consumer.call(400, None, question("c1"))) == 2 * [
        (at, "PULL") for at in range(4)
    ]
    await consumer.answer(401, None, set_mode("POP"))
    assert assigned(consumer.call(400, None, question("c1"))) == [(-1, "POP"), (-1, "POP")]
    assert assigned(consumer.call(400, None, question("c1", "MACHINE"))) == 2 * [(-1, "POP")]


async def test_nobody_is_assigned_anything_that_nobody_knows(serve, group) -> None:
    consumer = Consumer(serve())
    group.queues.maps.are_read = False
    join(consumer, "c1")
    assert consumer.call(400, None, question("c1")).body == b"{}", "the other groups"
    know_masters(group)
    assert consumer.call(400, None, question("c1", "MACHINE")).body == b"{}"
    assert assigned(consumer.call(400, None, question("stranger"))) == []
    asked = encode_body({"topic": TOPIC, "consumerGroup": "empty", "clientId": "c1"})
    assert consumer.call(400, None, asked).body == b"{}", "the group has no member"


def join(consumer: Consumer, client_id: str) -> None:
    """Become a member."""
    data = {
        "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
        "subscriptionDataSet": [
            {"topic": TOPIC, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1,
             "expressionType": "TAG", "classFilterMode": False}
        ],
    }  # fmt: skip
    body = {"clientID": client_id, "consumerDataSet": [data], "producerDataSet": []}
    assert consumer.call(34, None, encode_body(body)).code == 0


@pytest.mark.parametrize(
    ("strategy", "at", "found"),
    [
        ("AVG", 0, [0, 1]),
        ("AVG", 1, [2]),
        ("AVG", 2, [3]),
        ("AVG_BY_CIRCLE", 0, [0, 3]),
        ("AVG_BY_CIRCLE", 2, [2]),
    ],
)
async def test_shares_of_those_who_pull(strategy: str, at: int, found: list[int]) -> None:
    asked = AssignmentQuestion(TOPIC, GROUP, f"c{at}", strategy)
    queues = [MessageQueue("broker-a", queue_id, TOPIC) for queue_id in range(4)]
    share = shares(asked, None, queues, ["c0", "c1", "c2"])
    assert [queue.queue_id for queue in share] == found


@pytest.mark.parametrize(
    ("members", "share", "at", "found"),
    [
        (4, 1, 0, [0, 1]),
        (4, 1, 3, [3, 0]),
        (4, 2, 0, [0, 1, 2]),
        (4, 3, 0, [-1]),
        (8, 1, 5, [1]),
    ],
)
async def test_members_that_pop_share_queues(
    members: int, share: int, at: int, found: list[int]
) -> None:
    asked = AssignmentQuestion(TOPIC, GROUP, f"c{at}")
    mode = ModeSet(TOPIC, GROUP, True, share)
    queues = [MessageQueue("broker-a", queue_id, TOPIC) for queue_id in range(4)]
    names = [f"c{number}" for number in range(members)]
    assert [queue.queue_id for queue in shares(asked, mode, queues, names)] == found
