"""New names have a budget: of one connection, and of all together; what is known has none."""

from __future__ import annotations

import pytest
from gantry_broker.clients.creation import LATER_S
from gantry_broker.clients.newcomers import NewcomerBudget, Newcomers
from gantry_protocol.bodies import ConsumerData, HeartbeatData, encode_body
from gantry_protocol.codes import RequestCode, ResponseCode
from support.group_view import FakeConnection

COMMIT: dict[str, object] = {"topic": "TopicTest", "queueId": 1, "commitOffset": 5}
TOPIC = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "defaultTopic": "TBW102"}
TOPIC |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}


def _taken(newcomers: Newcomers, conn: FakeConnection, count: int, now_s: float) -> int:
    return sum(newcomers.refuse(conn, now_s) is None for _ in range(count))  # type: ignore[arg-type]


def test_a_budget_fills_with_time() -> None:
    newcomers, conn = (
        Newcomers("topics", NewcomerBudget(10, 2.0), NewcomerBudget(1000, 1000.0)),
        FakeConnection(),
    )
    assert _taken(newcomers, conn, 50, 100.0) == 10
    assert _taken(newcomers, conn, 50, 101.0) == 2
    assert _taken(newcomers, conn, 50, 1000.0) == 10, "no more than at once, however long it waited"
    assert newcomers.refused == 40 + 48 + 40


def test_one_connection_leaves_the_others_theirs_and_all_have_one_together() -> None:
    newcomers = Newcomers("groups", NewcomerBudget(10, 1.0), NewcomerBudget(25, 1.0))
    conns = [FakeConnection() for _ in range(4)]
    assert [_taken(newcomers, conn, 20, 5.0) for conn in conns] == [10, 10, 5, 0]


def test_a_refusal_says_what_there_is_too_much_of() -> None:
    newcomers = Newcomers("topics", NewcomerBudget(0, 1.0), NewcomerBudget(10, 1.0))
    refusal = newcomers.refuse(FakeConnection(), 0.0)  # type: ignore[arg-type]
    assert refusal is not None
    assert refusal.code is ResponseCode.SYSTEM_BUSY
    assert "new topics" in refusal.remark


@pytest.fixture
def tight(client):
    """Nobody may bring in more than two."""
    for newcomers in (client.processor.new_topics, client.processor.new_groups):
        newcomers._own = NewcomerBudget(2, 0.001)
    return client


async def test_commits_of_new_groups_are_bounded_and_those_of_known_ones_are_not(tight) -> None:
    """Whoever is refused hears so at once; the others when their commit is confirmed."""
    answers = [
        tight.ask(15, {**COMMIT, "consumerGroup": group, "commitOffset": offset})[1]
        for group, offset in [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("b", 2), ("c", 2)]
    ]
    codes = [None if answer is None else answer.code for answer in answers]
    busy = ResponseCode.SYSTEM_BUSY
    assert codes == [None, None, busy, None, None, busy]
    assert tight.call(14, {**COMMIT, "consumerGroup": "c", "setZeroIfNotFound": False}).code == 22


async def test_new_topics_are_bounded_and_known_ones_are_not(tight) -> None:
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    for topic in ("one", "two"):
        tight.ask(code, {**TOPIC, "topic": topic})
    assert tight.processor.new_topics.refused == 0
    _, refused = tight.ask(code, {**TOPIC, "topic": "three"})
    assert refused is not None
    assert refused.code == ResponseCode.SYSTEM_BUSY
    _, known = tight.ask(code, {**TOPIC, "topic": "TopicTest"})
    assert known is None or known.code == 0


async def test_new_groups_by_heartbeats_are_bounded_and_known_ones_are_not(tight, connect) -> None:
    """Who was a member once has a retry topic, so that a fleet may come back at once."""

    def beat(client, *groups: str) -> int:
        data = HeartbeatData("c", consumer_data_set=[ConsumerData(name) for name in groups])
        return client.call(RequestCode.HEART_BEAT, None, encode_body(data)).code

    sessions, other = tight.processor._sessions, connect()
    assert beat(tight, "a", "b") == 0
    assert beat(tight, "a", "b", "c") == ResponseCode.SYSTEM_BUSY
    assert sessions.consumer_groups() == ["a", "b"]
    assert beat(other, "a") == 0
    tight.processor.connection_closed(tight.conn)
    tight.processor.connection_closed(other.conn)
    assert sessions.consumer_groups() == []
    assert beat(connect(), "a", "b", "d", "e") == 0
    assert tight.processor.new_groups.refused == 1


async def test_what_a_topic_costs_later_is_owed_until_it_is_there(client, group) -> None:
    """Also if it was there: the controllers commit each change."""
    group.holding_topics = True
    for topic in ("one", "TopicTest"):
        client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "topic": topic})
    assert client.conn.turns.owed_s == pytest.approx(2 * LATER_S)
    group.release_topics()
    assert client.conn.turns.owed_s == pytest.approx(0.0)
