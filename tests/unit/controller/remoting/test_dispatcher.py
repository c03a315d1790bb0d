"""The dispatcher: who answers, by when, and what is never done twice."""

import asyncio

import pytest
from gantry_controller.raft.errors import NotLeader, Overloaded
from gantry_controller.remoting import dispatcher as module
from gantry_controller.remoting.dispatcher import (
    ANSWER_WITHIN_S,
    LOG_INDEX,
    NOT_LEADER_REMARK,
    WITH_INDEX,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import ConnectError, ConnectionClosed, RequestTimeout, WireError
from gantry_protocol.types import NodeId
from support.controller_dispatcher import CLUSTER, NAME, Harness

GROUP = {"clusterName": CLUSTER, "brokerName": NAME}
APPLY = {**GROUP, "appliedBrokerId": "1", "registerCheckCode": "h:1;1"}
FROM_THE_LEADER = reply(request(1013), remark="from the leader")


async def test_follower_passes_on_to_the_leader(harness: Harness) -> None:
    harness.quorum.follow(2)
    harness.forwarder.answer = FROM_THE_LEADER
    assert harness.call(1013, APPLY).remark == "from the leader"
    ((leader, command),) = harness.forwarder.passed_on
    assert (leader, command.code) == (2, 1013)


async def test_what_was_passed_on_is_not_passed_on_again(harness: Harness) -> None:
    harness.quorum.follow(2)
    answer = harness.call(1013, {**APPLY, "gantryForwarded": "1"})
    assert (answer.code, answer.remark) == (ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER_REMARK)
    assert harness.forwarder.passed_on == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [(1004, ResponseCode.CONTROLLER_NOT_LEADER), (105, ResponseCode.SYSTEM_ERROR)],
)
async def test_without_a_leader(harness: Harness, code: int, expected: ResponseCode) -> None:
    harness.quorum.follow(None)
    answer = harness.call(code, {**GROUP, "topic": "t"})
    assert (answer.code, answer.remark) == (expected, NOT_LEADER_REMARK)
    assert answer.ext is None


async def test_unreachable_leader(harness: Harness) -> None:
    harness.quorum.follow(2)
    harness.forwarder.answer = ConnectError("gone", refused=True)
    answer = harness.call(1013, APPLY)
    assert (answer.code, answer.remark) == (ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER_REMARK)


@pytest.mark.parametrize("lost", [RequestTimeout("too late"), ConnectionClosed("it went away")])
async def test_lost_answer_of_the_leader_does_not_look_like_a_refusal(
    harness: Harness, lost: Exception
) -> None:
    """The leader may have committed it; a text of its own keeps that apart from 'not taken'."""
    harness.quorum.follow(2)
    harness.forwarder.answer = lost
    answer = harness.call(1013, APPLY)
    assert (answer.code, answer.remark) == (ResponseCode.CONTROLLER_NOT_LEADER, str(lost))


async def test_answers_say_the_index_they_reflect_to_who_asks(harness: Harness) -> None:
    asking = {**APPLY, WITH_INDEX: "1"}
    applied = harness.call(1013, asking)
    assert applied.ext == {**GROUP, LOG_INDEX: "1"}
    refused = harness.call(1013, {**asking, "registerCheckCode": "other;1"})
    assert (refused.code, refused.ext) == (
        ResponseCode.CONTROLLER_BROKER_ID_INVALID,
        {**GROUP, LOG_INDEX: "2"},
    )
    read = harness.call(1004, {**GROUP, WITH_INDEX: "1"})
    assert (read.ext or {})[LOG_INDEX] == "2"
    assert LOG_INDEX not in (harness.call(1004, GROUP).ext or {})


async def test_leadership_lost_before_the_proposal_was_taken(harness: Harness) -> None:
    """It was not taken, so the new leader may have it."""
    harness.forwarder.answer = FROM_THE_LEADER
    harness.quorum.outcome = NotLeader(NodeId(2))
    assert harness.call(1013, APPLY).remark == "from the leader"
    assert harness.call(1013, {**APPLY, "gantryForwarded": "1"}).code == (
        ResponseCode.CONTROLLER_NOT_LEADER
    )


async def test_unknown_outcome_is_not_repeated(harness: Harness) -> None:
    harness.forwarder.answer = FROM_THE_LEADER
    lost = RuntimeError("another leader's entry took its place")
    harness.quorum.outcome = lost
    answer = harness.call(1013, APPLY)
    assert (answer.code, answer.remark) == (ResponseCode.CONTROLLER_NOT_LEADER, str(lost))
    assert harness.forwarder.passed_on == []


async def test_overload_is_said(harness: Harness) -> None:
    harness.quorum.outcome = Overloaded("full")
    answer = harness.call(1013, APPLY)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, "full")


async def test_new_leader_first_catches_up(harness: Harness) -> None:
    """What the handler looks at must not be older than its predecessor's answers."""
    harness.quorum.is_serving_leader = False
    harness.quorum.holding = True
    answers = harness.ask(1013, APPLY)
    assert (harness.quorum.reads, harness.quorum.index) == (1, 0)
    harness.quorum.is_serving_leader = True
    harness.quorum.release()
    assert answers == []
    harness.quorum.release()
    assert answers[0].code == 0


async def test_new_leader_answers_what_it_cannot_read(harness: Harness) -> None:
    """In the node's own pass: an exception there would end the process."""
    harness.quorum.is_serving_leader = False
    harness.quorum.holding = True
    malformed = harness.ask(1002, {})
    monstrous = harness.ask(
        1013, {**APPLY, "appliedBrokerId": "1", "registerCheckCode": "x" * 3**14}
    )
    harness.quorum.release()
    assert [one.code for one in malformed + monstrous] == [ResponseCode.SYSTEM_ERROR] * 2


@pytest.mark.looptime
async def test_request_without_a_quorum_is_answered_in_time(harness: Harness) -> None:
    harness.quorum.holding = True
    answers = harness.ask(1013, APPLY)
    await asyncio.sleep(ANSWER_WITHIN_S - 0.1)
    assert answers == []
    await asyncio.sleep(0.2)
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_BUSY]
    harness.quorum.release()
    assert len(answers) == 1
    assert not harness.dispatcher._open


async def test_handler_that_raises_leaves_nothing_open(harness: Harness) -> None:
    with pytest.raises(WireError, match="brokerName"):
        harness.call(1004, {})
    assert not harness.dispatcher._open


async def test_answer_that_cannot_be_made_does_not_harm_the_log(harness: Harness) -> None:
    def broken() -> RemotingCommand:
        raise ZeroDivisionError("a bug")

    code = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID
    harness.dispatcher.add({code: lambda exchange: harness.dispatcher.read(exchange, broken)})
    answer = harness.call(code)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "a bug")


async def test_monstrous_event_is_refused(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMMAND_BYTES_MAX", 100)
    with pytest.raises(WireError, match="more than 100"):
        harness.call(1013, {**APPLY, "registerCheckCode": "h:1;" + "x" * 200})
    assert harness.quorum.index == 0


async def test_follower_answers_a_read_from_its_own_state(harness: Harness) -> None:
    harness.quorum.follow(2)
    assert harness.call(1012, GROUP).ext == {**GROUP, "nextBrokerId": "1"}
    assert harness.forwarder.passed_on == []


async def test_follower_that_cannot_read_now_sends_who_understands_that_to_the_leader(
    harness: Harness,
) -> None:
    harness.quorum.follow(2)
    harness.quorum.redirects = 1
    answer = harness.call(105, {"topic": "t", "gantryRedirects": "true"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "lags" in answer.remark
    assert answer.ext is not None
    assert (answer.ext["controllerLeaderAddress"], answer.ext["peers"]) == ("h:1", "n1:h:1;")
    assert harness.forwarder.passed_on == []


async def test_follower_that_cannot_read_now_asks_the_leader_for_all_others(
    harness: Harness,
) -> None:
    harness.quorum.follow(2)
    harness.quorum.redirects = 1
    harness.forwarder.answer = FROM_THE_LEADER
    assert harness.call(105, {"topic": "t"}).remark == "from the leader"


async def test_node_that_became_the_leader_meanwhile_reads_as_such(harness: Harness) -> None:
    harness.quorum.redirects = 1
    assert harness.call(1012, GROUP).ext == {**GROUP, "nextBrokerId": "1"}


async def test_members_are_struck_once_most_controllers_were_heard_of(harness: Harness) -> None:
    """An older one would stop at an event that moves the owners of queues."""
    harness.watchman.may_raise = lambda: None  # type: ignore[method-assign]
    answer = harness.call(RequestCode.CLEAN_BROKER_DATA, {**GROUP, "isCleanLivingBroker": "true"})
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "try again in a moment" in (answer.remark or "")
    harness.watchman.may_raise = lambda: True  # type: ignore[method-assign]
    answer = harness.call(RequestCode.CLEAN_BROKER_DATA, {**GROUP, "isCleanLivingBroker": "true"})
    assert answer.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, "there is no group"
