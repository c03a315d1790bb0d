"""Consumers between a master and the controllers: reported in batches, remembered by the next."""

import asyncio
import json
from typing import Any

import pytest
from gantry_broker.clients.claim import Claim
from gantry_broker.clients.consumers import (
    GROUPS_PER_REPORT,
    REMEMBER_S,
    REPORT_GAP_S,
    RETRY_S,
    VERIFY_EVERY_S,
    Consumers,
)
from gantry_broker.clients.elsewhere import Elsewhere
from gantry_broker.clients.sessions import Sessions
from gantry_protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData, encode_body
from gantry_protocol.bodies.consumers import ConsumerClient, ConsumerMembership, ConsumerTable
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import RequestTimeout
from gantry_protocol.types import BrokerId, Epoch
from support.group_view import FakeConnection, NoControllers

CLAIM = Claim(BrokerId(1), Epoch(1), "i1")
NEXT = Claim(BrokerId(2), Epoch(2), "i2")


def nothing_elsewhere() -> Elsewhere:
    """There is one broker group."""
    return Elsewhere("c", NoControllers())


class Asked(NoControllers):
    """They note what they are asked of consumers; locks have tests of their own."""

    def ask(self, command: RemotingCommand, done: Any, timeout_s: float) -> None:
        if command.code != RequestCode.GANTRY_GET_LOCKS:
            super().ask(command, done, timeout_s)


class Controllers(Asked):
    """They keep what they are told, as the real ones do, unless they are silent."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[str, Any] = {}
        self.reports: list[dict[str, Any]] = []
        self.refuse: ResponseCode | Exception | None = None

    def ask(self, command: RemotingCommand, done: Any, timeout_s: float) -> None:
        super().ask(command, done, timeout_s)
        if isinstance(self.refuse, ResponseCode):
            done(reply(command, self.refuse, "no"))
        elif self.refuse is not None:
            done(self.refuse)
        elif command.code == 31002:
            done(reply(command, body=json.dumps({"groups": self.groups}).encode()))
        elif command.code == 31001:
            report = json.loads(command.body)
            self.reports.append(report)
            self.groups.update(report["groups"])
            for name in report["gone"]:
                del self.groups[name]
            done(reply(command))

    def members(self, group: str = "g") -> list[str]:
        return [one["clientId"] for one in self.groups[group]["clients"]]


class Master:
    """One mastership: sessions on a book on the controllers."""

    def __init__(self, controllers: Controllers, claim: Claim = CLAIM) -> None:
        self.book = Consumers("c", "broker-a", controllers, nothing_elsewhere())
        self.book.began(claim)
        self.sessions = Sessions(lambda _: None, self.book)
        self.book.serve(self.sessions)

    def beat(self, client: str, *groups: str, conn: FakeConnection | None = None) -> FakeConnection:
        conn = FakeConnection() if conn is None else conn
        consumers = [
            ConsumerData(group, subscription_data_set=[SubscriptionData(topic="t", sub_string="*")])
            for group in groups or ("g",)
        ]
        data = HeartbeatData(client, consumer_data_set=consumers)
        self.sessions.heartbeat(conn, "JAVA", 479, data)  # type: ignore[arg-type]  # a fake
        return conn


@pytest.fixture
def controllers() -> Controllers:
    return Controllers()


@pytest.mark.looptime
async def test_changes_are_reported_together_and_heartbeats_are_not(
    controllers: Controllers,
) -> None:
    master = Master(controllers)
    conns = [master.beat(client, "g", "h") for client in ("b", "a")]
    await asyncio.sleep(REPORT_GAP_S + 0.01)
    assert len(controllers.reports) == 1
    assert controllers.members("g") == controllers.members("h") == ["a", "b"]
    for _ in range(50):
        master.beat("b", "g", "h", conn=conns[0])
        await asyncio.sleep(1)
    assert len(controllers.reports) == 1
    master.sessions.connection_closed(conns[0])  # type: ignore[arg-type]  # a fake
    await asyncio.sleep(REPORT_GAP_S + 0.01)
    assert controllers.members("g") == ["a"]
    master.sessions.connection_closed(conns[1])  # type: ignore[arg-type]  # a fake
    await asyncio.sleep(REPORT_GAP_S + 0.01)
    assert controllers.groups == {}
    assert master.book.reports == 3


@pytest.mark.looptime
async def test_next_master_knows_the_members_at_once(controllers: Controllers) -> None:
    first = Master(controllers)
    for client in ("a", "b", "c"):
        first.beat(client)
    await asyncio.sleep(1)
    first.book.end()
    second = Master(controllers, NEXT)
    assert second.sessions.client_ids("g") == ["a", "b", "c"]
    conns = [second.beat("b"), second.beat("a")]
    assert sorted(second.sessions.client_ids("g")) == ["a", "b", "c"]
    await asyncio.sleep(1)
    assert [len(conn.sent) for conn in conns] == [0, 0]  # nobody moves queues
    assert controllers.members() == ["a", "b", "c"]  # nothing less is reported meanwhile
    newcomer = second.beat("d")
    assert [len(conn.sent) for conn in (*conns, newcomer)] == [1, 1, 1]
    await asyncio.sleep(REMEMBER_S)
    assert [len(conn.sent) for conn in conns] == [2, 2]  # c never came back
    assert sorted(second.sessions.client_ids("g")) == ["a", "b", "d"]
    assert controllers.members() == ["a", "b", "d"]


@pytest.mark.looptime
async def test_nothing_is_reported_before_the_last_masters_word_was_read(
    controllers: Controllers,
) -> None:
    """Else the first client to come back would strike out all others."""
    first = Master(controllers)
    first.beat("a")
    first.beat("b")
    await asyncio.sleep(1)
    first.book.end()
    controllers.refuse = RequestTimeout("no quorum")
    second = Master(controllers, NEXT)
    second.beat("b")
    await asyncio.sleep(3 * RETRY_S)
    controllers.refuse = None
    assert controllers.members() == ["a", "b"]
    await asyncio.sleep(2 * RETRY_S)
    assert controllers.members() == ["a", "b"]
    assert sorted(second.sessions.client_ids("g")) == ["a", "b"]


@pytest.mark.looptime
async def test_a_lost_report_is_repeated(controllers: Controllers) -> None:
    master = Master(controllers)
    controllers.refuse = RequestTimeout("no quorum")
    master.beat("a")
    await asyncio.sleep(1.5 * RETRY_S)
    controllers.refuse = None
    await asyncio.sleep(RETRY_S)
    assert controllers.members() == ["a"]


@pytest.mark.looptime
async def test_what_the_controllers_have_forgotten_is_reported_again(
    controllers: Controllers,
) -> None:
    """They take a master for gone that they have not heard for long; then it is back."""
    master = Master(controllers)
    master.beat("a", "g", "h")
    await asyncio.sleep(1)
    reports = len(controllers.reports)
    await asyncio.sleep(2 * VERIFY_EVERY_S)
    assert len(controllers.reports) == reports, "nothing is said while all is well"
    del controllers.groups["g"]
    controllers.groups["x"] = controllers.groups["h"]
    await asyncio.sleep(VERIFY_EVERY_S + 1)
    assert sorted(controllers.groups) == ["g", "h"]
    assert controllers.members("g") == ["a"]


@pytest.mark.looptime
async def test_a_refused_report_is_given_up_and_counted(controllers: Controllers) -> None:
    master = Master(controllers)
    controllers.refuse = ResponseCode.INVALID_PARAMETER
    master.beat("a")
    await asyncio.sleep(10)
    assert master.book.unreported == 1
    assert [command.code for command, _ in controllers.asked] == [31002, 31001]


@pytest.mark.looptime
async def test_controllers_of_another_make_are_asked_once(controllers: Controllers) -> None:
    controllers.refuse = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    master = Master(controllers)
    master.beat("a")
    await asyncio.sleep(60)
    assert [command.code for command, _ in controllers.asked] == [31002]


@pytest.mark.looptime
async def test_a_report_has_a_bound(controllers: Controllers) -> None:
    master = Master(controllers)
    for start in range(0, 2 * GROUPS_PER_REPORT, 100):
        master.beat(f"c{start}", *(f"g{start + number}" for number in range(100)))
    master.beat("x", "one-more")
    await asyncio.sleep(1)
    assert [len(report["groups"]) for report in controllers.reports] == [
        GROUPS_PER_REPORT,
        GROUPS_PER_REPORT,
        1,
    ]


@pytest.mark.looptime
async def test_what_ended_says_nothing_more(controllers: Controllers) -> None:
    master = Master(controllers)
    conn = master.beat("a")
    await asyncio.sleep(1)
    master.book.end()
    master.sessions.connection_closed(conn)  # type: ignore[arg-type]  # a fake
    await asyncio.sleep(60)
    assert controllers.members() == ["a"]


async def test_settings_are_read_when_there_is_a_newer_version() -> None:
    controllers = NoControllers()
    book = Consumers("c", "broker-a", controllers, nothing_elsewhere())
    assert book.config("g").consume_enable
    book.catch_up(3)
    book.catch_up(3)
    ((command, done),) = controllers.asked
    assert command.ext == {"clusterName": "c", "brokerName": "broker-a"}
    table = {"subscriptionGroupTable": {"g": {"groupName": "g", "consumeEnable": False}}}
    done(reply(command, ext={"subscriptionsVersion": "3"}, body=json.dumps(table).encode()))
    assert not book.config("g").consume_enable
    book.catch_up(3)
    assert len(controllers.asked) == 1


async def test_what_an_earlier_mastership_asked_for_is_not_believed_in_this_one() -> None:
    controllers = Asked()
    consumers = Consumers("c", "g", controllers, nothing_elsewhere())
    consumers.began(CLAIM)
    consumers.began(NEXT)
    (command, late), (_, own) = controllers.asked
    client = ConsumerClient("gone", "JAVA", 1)
    membership = ConsumerMembership(clients=[client])
    late(reply(command, body=encode_body(ConsumerTable({"g": membership}))))
    assert consumers.remembered("g") == []
    own(reply(command, body=encode_body(ConsumerTable({"g": membership}))))
    assert consumers.remembered("g") == ["gone"]


@pytest.mark.looptime
async def test_the_answer_to_a_report_of_an_earlier_mastership_is_not_heard() -> None:
    """It says nothing of the report that is under way now, which may still be lost."""
    controllers = Asked()
    master = Master(controllers)  # type: ignore[arg-type]  # it answers when told to
    empty = json.dumps({"groups": {}}).encode()
    late = []
    for claim in (CLAIM, NEXT):
        master.book.began(claim)
        master.book.serve(master.sessions)
        command, done = controllers.asked[-1]
        done(reply(command, body=empty))
        master.book.changed("g")
        master.beat("a")
        await asyncio.sleep(2 * REPORT_GAP_S)
        assert controllers.asked[-1][0].code == 31001
        late.append(controllers.asked[-1])
    (earlier, answered), (present, done) = late
    answered(reply(earlier))
    assert master.book.reports == 0
    done(RequestTimeout("no quorum"))
    await asyncio.sleep(2 * RETRY_S)
    command, done = controllers.asked[-1]
    assert json.loads(command.body) == json.loads(present.body), "it is said again"
    done(reply(command))
    assert master.book.reports == 1
    master.book.end()
