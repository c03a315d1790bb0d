"""What the name service tells clients who come in by a listener."""

from typing import Any

import msgspec
import pytest
from gantry_controller.metadata.events import DeclareFronts, DeclareGroup, RetireGroup
from gantry_controller.metadata.listeners import GroupListener, ListenedMember
from gantry_controller.raft.errors import ReadRedirect
from gantry_controller.remoting.dispatcher import AT_LISTENERS, LISTENER
from gantry_controller.requests import REMOTING
from gantry_protocol.bodies import SyncStateSetBody, encode_body
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.remoting.reads import REDIRECTS
from gantry_protocol.types import BrokerId, Epoch
from support.controller_dispatcher import CLUSTER, NAME, FakeConnection, Harness, address

INSIDE = "10.96.0.7:10911"
OUTSIDE = GroupListener(
    "outside",
    (
        ListenedMember(BrokerId(1), "172.18.0.2:30911", "172.18.0.2:31001"),
        ListenedMember(BrokerId(2), "172.18.0.3:30911", "172.18.0.3:31002"),
    ),
)


def start(harness: Harness, *listeners: GroupListener, route: str | None = INSIDE) -> None:
    """A group of two with master 1, both in sync, and the topic ``Orders``, which has readers."""
    harness.apply(
        DeclareGroup(
            cluster=CLUSTER,
            name=NAME,
            uid="u1",
            replicas=2,
            min_in_sync_replicas=1,
            route_address=route,
            listeners=listeners,
        )
    )
    for broker_id in (1, 2):
        harness.join(broker_id, incarnation=f"i{broker_id}")
    assert harness.elect(1).code == 0
    body = encode_body(SyncStateSetBody([BrokerId(1), BrokerId(2)], Epoch(1)))
    assert harness.alter(1, 1, body).code == 0
    create = {"topic": "Orders", "readQueueNums": "4", "writeQueueNums": "8", "perm": "6"}
    readers = {"attributes": "+gantry.readers=2", "clusterName": CLUSTER}
    assert harness.call(17, {**create, **readers}).code == 0


def outside(
    harness: Harness, code: int, ext: dict[str, str], listener: str = "outside"
) -> RemotingCommand:
    """The answer at the port of a listener."""
    stub = FakeConnection(1, believed=False)
    answer = harness.dispatcher.handle_outside(listener, stub, request(code, ext))  # type: ignore[arg-type]  # a fake of the same shape
    (found,) = stub.replies if answer is None else [answer]
    return found


def addresses(answer: RemotingCommand) -> dict[str, str]:
    assert answer.code == 0, answer
    (broker,) = msgspec.json.decode(answer.body)["brokerDatas"]
    found: dict[str, str] = broker["brokerAddrs"]
    return found


def route(harness: Harness, listener: str = "outside", **ext: str) -> RemotingCommand:
    return outside(harness, 105, {"topic": "Orders", **ext}, listener)


class TestRoutes:
    async def test_each_way_in_has_its_own_addresses(self, harness: Harness) -> None:
        start(harness, OUTSIDE)
        inside = harness.call(105, {"topic": "Orders"})
        assert addresses(inside) == {"0": INSIDE, "2": address(2)}
        assert addresses(route(harness)) == {"0": "172.18.0.2:30911", "2": "172.18.0.3:31002"}

    async def test_follows_the_master(self, harness: Harness) -> None:
        start(harness, OUTSIDE)
        harness.die(1)
        elected = {"designateElect": "true", "clusterName": CLUSTER, "brokerName": NAME}
        harness.heartbeat(2, incarnation="i2")
        assert harness.call(1002, {**elected, "brokerId": "2"}, connection=2).code == 0
        assert harness.group.master_id == 2
        assert addresses(route(harness))["0"] == "172.18.0.3:30911"
        assert addresses(harness.call(105, {"topic": "Orders"}))["0"] == INSIDE

    @pytest.mark.parametrize(
        ("listeners", "name"),
        [((OUTSIDE,), "other"), ((), "outside"), ((GroupListener("a"),), "a")],
    )
    async def test_without_addresses_there_is_no_route(
        self, harness: Harness, listeners: tuple[GroupListener, ...], name: str
    ) -> None:
        start(harness, *listeners)
        answer = route(harness, name)
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert not answer.body

    async def test_before_the_first_master_there_is_none(self, harness: Harness) -> None:
        harness.apply(
            DeclareGroup(
                cluster=CLUSTER,
                name=NAME,
                uid="u1",
                replicas=2,
                min_in_sync_replicas=1,
                listeners=(OUTSIDE,),
            )
        )
        assert outside(harness, 105, {"topic": "TBW102"}).code == ResponseCode.TOPIC_NOT_EXIST

    async def test_nor_of_a_retired_group(self, harness: Harness) -> None:
        start(harness, OUTSIDE)
        harness.apply(RetireGroup(cluster=CLUSTER, name=NAME, uid="u1"))
        assert route(harness).code == ResponseCode.TOPIC_NOT_EXIST

    async def test_no_address_of_fronts(self, harness: Harness) -> None:
        start(harness, OUTSIDE)
        harness.apply(DeclareFronts(CLUSTER, "f", "front.example", 30000, 4))
        assert addresses(harness.call(105, {"topic": "Orders"})) == {"0": "front.example:30000"}
        assert addresses(route(harness))["0"] == "172.18.0.2:30911"

    async def test_no_broker_of_the_old_kind(self, harness: Harness) -> None:
        start(harness)
        answer = outside(harness, 105, {"topic": NAME})
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


class TestOtherRequests:
    async def test_the_list_of_brokers_has_the_same_addresses(self, harness: Harness) -> None:
        start(harness, OUTSIDE)
        answer = outside(harness, 106, {})
        table: dict[str, Any] = msgspec.json.decode(answer.body)["brokerAddrTable"]
        assert table[NAME]["brokerAddrs"] == {"0": "172.18.0.2:31001", "2": "172.18.0.3:31002"}

    @pytest.mark.parametrize("code", sorted(set(REMOTING) - AT_LISTENERS), ids=lambda it: it.name)
    async def test_all_others_are_not_served(self, harness: Harness, code: RequestCode) -> None:
        start(harness, OUTSIDE)
        answer = outside(harness, code, {"topic": "Orders"})
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    def test_what_is_served_changes_nothing_and_needs_no_key(self) -> None:
        rows = [REMOTING[code] for code in AT_LISTENERS]
        assert all(row.named and row.event is None and not row.needs_key for row in rows)


class TestPassedOn:
    async def test_the_leader_hears_by_which_listener(self, harness: Harness) -> None:
        """It answers at another port, where nobody has come in by a listener."""
        start(harness, OUTSIDE)
        harness.quorum.follow(2)
        harness.quorum.redirects = 1
        stub = FakeConnection(1, believed=False)
        command = request(105, {"topic": "Orders", REDIRECTS: "true", LISTENER: "other"})
        harness.forwarder.answer = reply(command, body=b"{}")
        assert harness.dispatcher.handle_outside("outside", stub, command) is None  # type: ignore[arg-type]  # a fake of the same shape
        ((leader, passed_on),) = harness.forwarder.passed_on
        assert leader == 2
        assert (passed_on.ext or {})[LISTENER] == "outside"
        assert stub.replies[0].body == b"{}"

    async def test_nobody_is_sent_to_another_controller(self, harness: Harness) -> None:
        """Its address would be one inside of the cluster."""
        start(harness, OUTSIDE)
        harness.quorum.follow(2)
        harness.quorum.redirects = 1
        harness.forwarder.answer = ReadRedirect(None, "it is gone")
        answer = route(harness, REDIRECTS="true")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert not answer.ext
