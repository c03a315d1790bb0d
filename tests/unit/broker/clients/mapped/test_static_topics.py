"""Static topics, as upstream's tools make and read them."""

from __future__ import annotations

import json

import msgspec
from gantry_protocol.bodies.queue_maps import QueuePlaces
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import reply
from gantry_protocol.errors import RequestTimeout
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX, MappedQueue, Segment
from support.mapped_group import HERE, THERE, TOPIC, MappedGroup, at

CHANGE, READ = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, RequestCode.GET_TOPIC_CONFIG


def wish(**queues: list[str]) -> bytes:
    """What the tool tells one broker: for each queue the groups of its segments."""
    items = {
        number[1:]: [
            {"gen": gen, "queueId": 7, "bname": group, "logicOffset": gen * 20_000}
            for gen, group in enumerate(groups)
        ]
        for number, groups in queues.items()
    }
    detail = {"topic": TOPIC, "totalQueues": 3, "bname": HERE, "epoch": 99, "hostedQueues": items}
    return json.dumps(detail).encode()


async def test_only_the_last_group_of_each_queue_is_taken_over(mapped: MappedGroup) -> None:
    asked = mapped.ask(CHANGE, {"topic": TOPIC}, wish(q0=[HERE, THERE], q2=[HERE]))
    command, done = mapped.controllers.asked[-1]
    assert command.code == RequestCode.GANTRY_MAP_QUEUES
    assert command.ext is not None
    assert (command.ext["topic"], command.ext["queues"], command.ext["epoch"]) == (TOPIC, "3", "99")
    places = msgspec.json.decode(command.body, type=QueuePlaces).places
    assert places == {0: THERE, 2: HERE}
    assert mapped.answer(asked) is None, "0 is said once the controllers have it"
    done(reply(command, ResponseCode.INVALID_PARAMETER, "no such group"))
    answer = mapped.answer(asked)
    assert answer is not None
    assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, "no such group")


async def test_a_group_that_gets_nothing_has_nothing_to_say(mapped: MappedGroup) -> None:
    assert mapped.code(mapped.ask(CHANGE, {"topic": TOPIC}, wish())) == 0
    assert mapped.controllers.asked == []


async def test_controllers_that_do_not_answer_are_no_success(mapped: MappedGroup) -> None:
    asked = mapped.ask(CHANGE, {"topic": TOPIC}, wish(q0=[HERE]))
    mapped.controllers.asked[-1][1](RequestTimeout("late"))
    assert mapped.code(asked) not in (None, 0)


async def test_a_tool_sees_the_queues_of_each_group(mapped: MappedGroup) -> None:
    await mapped.begin()
    moved = MappedQueue((Segment(THERE, 0, 1), Segment(HERE, 5, 1 + MAPPED_QUEUES_MAX)), "", 1)
    mapped.tell(at(THERE), moved, epoch=6)
    answer = mapped.answer(mapped.ask(READ, {"topic": TOPIC}))
    assert answer is not None
    detail = json.loads(answer.body)["mappingDetail"]
    assert (detail["totalQueues"], detail["epoch"], detail["bname"]) == (2, 6, HERE)
    assert list(detail["hostedQueues"]) == ["1"]
    (item,) = detail["hostedQueues"]["1"]
    assert (item["bname"], item["logicOffset"], item["startOffset"]) == (HERE, 0, 0)
