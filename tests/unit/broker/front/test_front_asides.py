"""The sends and pulls that a front answers, and those that it leaves to the master."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gantry_broker.clients import pull_asides as module
from gantry_broker.clients.consumers import Consumers
from gantry_broker.clients.elsewhere import Elsewhere
from gantry_broker.clients.traffic import Traffic
from gantry_broker.front.asides import Asides
from gantry_broker.front.view import FrontView
from gantry_broker.member.repeats import Repeats
from gantry_broker.store.contract import Refusal
from gantry_broker.store.tables.offsets import rows_record
from gantry_broker.store.tables.resets import put_reset
from gantry_protocol.bodies import SubscriptionGroupTable, TopicConfig, encode_body
from gantry_protocol.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.frame import FrameDecoder, encode
from gantry_protocol.records import decode_records
from gantry_protocol.remoting.glance import FrameCutter
from gantry_protocol.types import Epoch
from support.group_view import FakeConnection
from support.remote_group import RemoteGroup

EPOCH = Epoch(7)
SEND = {
    "a": "producers",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\u0001KEY-1\u0002",
    "j": "0",
    "k": "false",
}
PULL = {
    "consumerGroup": "g",
    "topic": "TopicTest",
    "queueId": "1",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}
WAITS, COMMITS, SUBSCRIBES = 2, 1, 4


class EntrustedConnection(FakeConnection):
    """Remembers what this process was trusted to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.entrusted: list[RemotingCommand] = []

    def entrust(self, command: RemotingCommand) -> None:
        self.entrusted.append(command)


class Pipe:
    """A client that is led to the master of an epoch."""

    def __init__(self) -> None:
        self.connection: Any = EntrustedConnection()
        self.epoch: int = EPOCH
        self.heartbeat: bytes | None = None
        self.said: list[RemotingCommand] = []

    def say(self, frame: bytes) -> None:
        self.said += FrameDecoder(expect_preamble=False).feed(frame)


class Front:
    """Asides over a remote store, and one client."""

    def __init__(self, directory: Path) -> None:
        self.group = RemoteGroup(directory)
        for topic in ("TopicTest", "%RETRY%g", "SCHEDULE_TOPIC_XXXX"):
            self.group.create_topic(TopicConfig(topic, 4, 4), lambda _: None, if_absent=False)
        self.store = self.group.remote
        controllers = self.group.controllers
        self.settings = Consumers("c", "g", controllers, Elsewhere("c", controllers))
        view = FrontView(self.store, cluster="c", store_host=("10.0.0.2", 10911))
        self.traffic = Traffic(0.0)
        self.asides = Asides(view, self.store, EPOCH, self.settings, self.traffic)
        self.pipe = Pipe()
        self._opaque = 0

    def takes(self, code: int, ext: dict[str, str], body: bytes = b"", **more: Any) -> bool:
        """Whether the front answers a request of its client."""
        self._opaque += 1
        asked = request(code, ext, body, **more)
        asked.opaque = self._opaque
        (glimpse,) = FrameCutter().feed(encode(asked))
        pipe: Any = self.pipe
        return self.asides.take(pipe, glimpse)

    def send(self, body: bytes = b"x", **more: str) -> bool:
        return self.takes(RequestCode.SEND_MESSAGE_V2, {**SEND, **more}, body)

    def pull(self, **more: str) -> bool:
        return self.takes(RequestCode.PULL_MESSAGE, {**PULL, **more})

    def answers(self) -> list[RemotingCommand]:
        return [answer for _, answer in self.pipe.connection.replies]

    def beat(self, *topics: str, sql: str = "") -> None:
        kind = "SQL92" if sql else "TAG"
        wanted = [SubscriptionData(each, sql or "*", expression_type=kind) for each in topics]
        data = HeartbeatData(
            "c1", consumer_data_set=[ConsumerData("g", subscription_data_set=wanted)]
        )
        self.pipe.heartbeat = encode(request(RequestCode.HEART_BEAT, None, encode_body(data)))


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    made = Front(tmp_path)
    yield made
    made.asides.close()
    made.group.messages.log.close()


async def test_a_plain_send_is_stored_and_answered_here(front: Front) -> None:
    assert front.send(b"one")
    (asked,) = front.pipe.connection.entrusted
    assert asked.body == b"one"
    (answer,) = front.answers()
    assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "1", "0")
    assert front.asides.served == 1


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"b": "NoSuchTopic"}, id="a topic that is not there"),
        pytest.param({"b": "%RETRY%g"}, id="a retry"),
        pytest.param({"b": "SCHEDULE_TOPIC_XXXX"}, id="a topic that is not for clients"),
        pytest.param({"i": "DELAY\u00013\u0002"}, id="a delay"),
        pytest.param({"i": "TRAN_MSG\u0001true\u0002PGROUP\u0001p\u0002"}, id="a transaction"),
        pytest.param({"i": "TIMER_DELAY_SEC\u00013\u0002"}, id="a timer"),
        pytest.param({"i": "REPLY_TO_CLIENT\u0001c\u0002"}, id="a request, whose reply it gets"),
        pytest.param({"m": "true"}, id="a batch, whose size is bounded by a setting"),
        pytest.param({"e": "none"}, id="a header that does not read"),
    ],
)
async def test_a_send_that_needs_more_is_the_masters(front: Front, more: dict[str, str]) -> None:
    assert not front.send(**more)
    assert front.pipe.connection.entrusted == []


async def test_a_repeated_send_is_answered_with_the_place_where_it_is(front: Front) -> None:
    """The master knows; the front's answer names the queue that the record is in."""
    front.group.repeats = Repeats(front.group.messages)
    assert front.send(b"one")
    front.pipe.connection = EntrustedConnection()
    assert front.send(b"one", e="2")
    assert front.send(b"two", e="3")
    found = [(answer.ext["queueId"], answer.ext["queueOffset"]) for answer in front.answers()]
    assert found == [("1", "0"), ("3", "0")]


async def test_a_send_that_cannot_be_stored_is_refused_here(front: Front) -> None:
    assert front.send(e="9")
    (answer,) = front.answers()
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_nothing_is_taken_for_a_client_that_is_led_to_another_master(front: Front) -> None:
    for epoch in (0, EPOCH - 1, EPOCH + 1):
        front.pipe.epoch = epoch
        assert not front.send()
        assert not front.pull()


async def test_nothing_is_taken_that_the_master_does_not_offer(front: Front) -> None:
    front.group.host.is_offered = False
    front.group.session.tell_state()
    assert not front.send()
    assert not front.pull()


async def test_no_send_is_taken_while_the_master_takes_none(front: Front) -> None:
    front.group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "draining")
    front.group.session.tell_state()
    assert not front.send()
    assert front.pull()


async def test_other_requests_are_the_masters(front: Front) -> None:
    assert not front.takes(RequestCode.GET_MAX_OFFSET, {"topic": "TopicTest", "queueId": "1"})


async def test_a_pull_is_read_and_answered_here(front: Front) -> None:
    assert front.send(b"one")
    assert front.pull()
    answer = front.answers()[1]
    assert [record.body for record in decode_records(answer.body)] == [b"one"]
    assert front.traffic.take() == ({"TopicTest": 1}, {"TopicTest@g": 1})
    assert front.asides.pulled.take() == [("g", "TopicTest", 1, 1)]
    assert front.asides.pulled.take() == [], "each is told once"


async def test_a_pull_waits_here_for_the_next_send(front: Front) -> None:
    assert front.pull(sysFlag=str(SUBSCRIBES | WAITS))
    assert (front.answers(), front.asides.parked) == ([], 1)
    assert front.send(b"one")
    assert sorted(answer.body != b"" for answer in front.answers()) == [False, True]
    assert front.asides.parked == 0


async def test_a_pull_is_read_by_what_its_clients_heartbeat_says(front: Front) -> None:
    assert not front.pull(sysFlag="0"), "it has said none"
    front.beat("Another")
    assert not front.pull(sysFlag="0"), "not of this topic"
    front.beat("Another", "TopicTest")
    assert front.pull(sysFlag="0")
    front.pipe.heartbeat = None
    assert not front.pull(sysFlag="0"), "it has taken it back"


async def test_a_pull_that_would_be_refused_is_the_masters(front: Front) -> None:
    assert not front.pull(topic="NoSuchTopic")
    assert not front.pull(queueId="9")
    assert not front.pull(expressionType="SQL92")


async def test_a_filter_in_sql_is_the_fronts_to_apply(front: Front) -> None:
    for number in (1, 2, 3):
        assert front.send(
            b"%d" % number, i=f"UNIQ_KEY\u0001KEY-{number}\u0002v\u0001{number}\u0002"
        )
    assert front.pull(expressionType="SQL92", subscription="v > 2 OR v = 1")
    answer = front.answers()[-1]
    assert [record.body for record in decode_records(answer.body)] == [b"1", b"3"]
    assert front.pull(expressionType="SQL92", subscription="v > 3")
    answer = front.answers()[-1]
    assert (answer.code, answer.ext["nextBeginOffset"], answer.body) == (20, "3", b"")
    front.beat("TopicTest", sql="v = 2")
    assert front.pull(sysFlag="0")
    assert [record.body for record in decode_records(front.answers()[-1].body)] == [b"2"]
    front.beat("TopicTest", sql="v = ")
    assert not front.pull(sysFlag="0"), "its master says what is wrong with it"


async def test_no_pull_is_taken_before_the_newest_settings_are_read(front: Front) -> None:
    front.settings.catch_up(3)
    assert not front.pull()
    (asked, done) = front.group.controllers.asked[-1]
    table = SubscriptionGroupTable({})
    done(reply(asked, 0, None, {"subscriptionsVersion": "3"}, encode_body(table)))
    assert front.pull()


async def test_a_pull_with_a_due_reset_is_the_masters_and_one_that_waits_is_sent_back(
    front: Front,
) -> None:
    assert front.send(b"one")
    assert front.send(b"two", i="UNIQ_KEY\u0001KEY-2\u0002")
    assert front.pull(queueOffset="2", sysFlag=str(SUBSCRIBES | WAITS))
    assert front.pull(queueOffset="2", sysFlag=str(SUBSCRIBES | WAITS), consumerGroup="other")
    before = len(front.answers())
    local = front.group.local.committed
    put_reset(local, "g", "TopicTest", 1, 0, due=True)
    rows = [(name, "TopicTest", 1, 0) for name in ("g", "<reset>g")]
    front.group.local.append([rows_record(rows)], lambda _: None)
    answers = front.answers()[before:]
    assert [answer.code for answer in answers] == [ResponseCode.PULL_RETRY_IMMEDIATELY]
    assert answers[0].ext["nextBeginOffset"] == "2"
    assert front.asides.parked == 1
    assert not front.pull(queueOffset="2")
    assert front.pull(queueOffset="2", consumerGroup="other")


async def test_a_position_is_passed_on_when_it_is_news_and_not_too_often(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s)
    flags = str(SUBSCRIBES | COMMITS)
    for offset in ("1", "1", "2"):
        assert front.pull(commitOffset=offset, sysFlag=flags)
    assert [(item.code, item.ext["commitOffset"]) for item in front.pipe.said] == [(15, "1")]
    assert front.pipe.said[0].is_oneway
    now_s += module.COMMIT_GAP_S
    assert front.pull(commitOffset="1", sysFlag=flags)
    assert front.pull(commitOffset="3", sysFlag=flags)
    assert front.pull(commitOffset="4", sysFlag=flags, queueId="2")
    assert [item.ext["commitOffset"] for item in front.pipe.said] == ["1", "3", "4"]
    assert front.pull(commitOffset="5", sysFlag=str(SUBSCRIBES), queueId="3")
    assert len(front.pipe.said) == 3, "it says none"


async def test_a_client_that_left_waits_for_nothing(front: Front) -> None:
    assert front.pull(sysFlag=str(SUBSCRIBES | WAITS))
    front.asides.forget(front.pipe.connection)
    assert front.asides.parked == 0
    assert front.answers() == []
