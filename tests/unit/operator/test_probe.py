"""Whom a probe asks, and what it makes of who answers oddly, or not at all."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gantry_operator import names
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP
from gantry_operator.support import probe as module
from gantry_operator.support import round_trip
from gantry_operator.support.findings import Diagnosis, Level
from gantry_operator.support.material import Material
from gantry_operator.support.probe import DiskOf, ProbePlan, ProbeWanted, SendTo, planned, probe
from gantry_operator.support.round_trip import ShownIdentity
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.frame import FrameDecoder, encode
from gantry_protocol.records import MessageRecord, encode_record
from gantry_protocol.remoting.signatures import ACCESS_KEY_FIELD
from support.probed_pods import ForwardingApi, forwarding, group_of, one_group, pod_of

NOW = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)
WARN, FAIL = Level.WARN, Level.FAIL


def plan_of(material: Material) -> ProbePlan:
    return planned(material, None, NOW)


def via(material: Material) -> list[tuple[str, str, int]]:
    return [(one.group, one.pod, one.port) for one in plan_of(material).sends]


def test_each_disk_of_a_group_and_its_quorum_is_measured() -> None:
    plan = plan_of(one_group(controllers=3))
    assert [(one.pod, one.port) for one in plan.disks] == [
        *((f"orders-broker-{n}", 10913) for n in range(3)),
        *((f"gantry-controller-{n}", 9880) for n in range(3)),
    ]
    assert plan.known == []


def test_a_message_goes_through_a_door_that_is_not_the_masters_own() -> None:
    assert via(one_group(door=True)) == [("orders", "orders-broker-1", 10910)]
    assert via(one_group(door=True, replicas=1)) == [("orders", "orders-broker-0", 10910)]
    assert via(one_group()) == [("orders", "orders-broker-0", 10911)]


def test_ports_are_those_that_the_pods_name() -> None:
    material = one_group(replicas=1)
    (pod,) = material.objects["Pod"]
    ports = [{"name": "http", "containerPort": 7}, {"name": "remoting", "containerPort": 8}]
    pod["spec"]["containers"][0]["ports"] = ports
    assert plan_of(material).disks == [DiskOf("orders-broker-0", names.BROKER, 7)]
    assert via(material) == [("orders", "orders-broker-0", 8)]


def test_each_shard_gets_a_message_at_its_port() -> None:
    material = one_group(shards=2)
    assert via(material) == [
        ("orders_0", "orders-broker-0", 11100),
        ("orders_1", "orders-broker-0", 11101),
    ]


def test_a_group_that_sleeps_is_left_alone() -> None:
    plan = plan_of(one_group(hibernated=True))
    assert (plan.disks, plan.sends) == ([], [])
    (said,) = plan.known
    assert (said.level, said.message) == (
        Level.OK,
        "BrokerGroup orders is hibernated, so it is not probed.",
    )


def test_a_group_without_a_master_gets_no_message() -> None:
    material = one_group(replicas=2)
    del material.objects["Pod"][0]["metadata"]["labels"][names.LABEL_ROLE]
    plan = plan_of(material)
    assert plan.sends == []
    (said,) = plan.known
    assert (said.level, said.message[:26]) == (FAIL, "orders: no message is sent")


def test_a_pod_that_is_not_ready_or_about_to_go_takes_no_message() -> None:
    material = one_group(door=True)
    material.objects["Pod"][1]["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z"
    material.objects["Pod"][2]["status"]["conditions"][0]["status"] = "False"
    assert via(material) == [("orders", "orders-broker-0", 10910)]
    assert len(plan_of(material).disks) == 3, "what runs is measured, Ready or not"


def test_a_container_that_does_not_run_is_told_and_not_asked() -> None:
    material = one_group()
    material.objects["Pod"][2]["status"]["containerStatuses"][0]["state"] = {"waiting": {}}
    plan = plan_of(material)
    assert len(plan.disks) == 2
    (said,) = plan.known
    assert said.message == "orders-broker-2 is not measured: its container broker does not run."


def test_only_the_group_that_is_meant_and_its_quorum() -> None:
    material = one_group(controllers=1, replicas=1)
    other = group_of(BROKER_GROUP, "bills")
    strange = group_of(CONTROLLER_GROUP, "strange")
    material.objects["BrokerGroup"].append(other)
    material.objects["ControllerGroup"].append(strange)
    material.objects["Pod"] += [
        pod_of(names.BROKER, "bills", 0, role=names.ROLE_MASTER),
        pod_of(names.CONTROLLER, "strange", 0),
    ]
    plan = planned(material, (BROKER_GROUP, other), NOW)
    assert [one.pod for one in plan.disks] == ["bills-broker-0", "gantry-controller-0"]
    assert [one.group for one in plan.sends] == ["bills"]
    plan = planned(material, (CONTROLLER_GROUP, strange), NOW)
    assert ([one.pod for one in plan.disks], plan.sends) == (["strange-controller-0"], [])


def test_pods_and_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PODS_MAX", 2)
    monkeypatch.setattr(module, "SENDS_MAX", 2)
    plan = plan_of(one_group(shards=5))
    assert (len(plan.disks), len(plan.sends)) == (2, 2)
    told = [one.message for one in plan.known]
    assert "3 broker groups got no message: 2 are probed at most." in told
    assert "orders-broker-2 is not measured: 2 pods are at most." in told


# ---- what answers


Serve = Callable[[RemotingCommand], RemotingCommand | None]


class Broker:
    """A broker as far as a probe sees one: it keeps the last message, in one queue.

    Attributes:
        asked: each request.
        instead: answers by code of the request; None for silence.
        read_after: pulls that find nothing before the first that does.
        shown: changes the body that is read.
    """

    def __init__(self) -> None:
        self.asked: list[RemotingCommand] = []
        self.instead: dict[int, Serve] = {}
        self.read_after = 0
        self.shown: Callable[[bytes], bytes] = bytes
        self._body = b""

    def codes(self) -> list[int]:
        return [command.code for command in self.asked]

    def serve(self, command: RemotingCommand) -> RemotingCommand | None:
        self.asked.append(command)
        if command.code in self.instead:
            return self.instead[command.code](command)
        if command.code == RequestCode.SEND_MESSAGE_V2:
            self._body = command.body
            ext = {"msgId": "0" * 32, "queueId": "0", "queueOffset": "7"}
            return reply(command, ext=ext)
        if command.code == RequestCode.PULL_MESSAGE:
            assert command.ext is not None
            assert (command.ext["queueOffset"], command.ext["sysFlag"]) == ("7", "4")
            if self.read_after:
                self.read_after -= 1
                return reply(command, ResponseCode.PULL_NOT_FOUND)
            return reply(command, body=record(self.shown(self._body)))
        return reply(command, ext={"offset": "7"})


def record(body: bytes) -> bytes:
    return encode_record(MessageRecord(topic=round_trip.TOPIC, body=body, queue_offset=7))


@asynccontextmanager
async def listening(broker: Broker) -> AsyncIterator[int]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder(expect_preamble=False)
        while data := await reader.read(65536):
            for command in decoder.feed(data):
                answer = broker.serve(command)
                if answer is not None:
                    writer.write(encode(answer))
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ForwardingApi]:
    async with forwarding(tmp_path) as api:
        yield api


async def sent(api: ForwardingApi, broker: Broker, who: ShownIdentity | None = None) -> Diagnosis:
    async with listening(broker) as port:
        plan = ProbePlan([], [SendTo("orders", "b-0", port, "b-0")], [])
        wanted = ProbeWanted(0.0, who or ShownIdentity())
        (found,) = await probe(api, "mq", plan, wanted, lambda _: None)
    return found


async def test_a_message_is_sent_once_and_read(api: ForwardingApi) -> None:
    broker = Broker()
    broker.read_after = 2
    found = await sent(api, broker)
    assert "; it was read " in found.message
    assert broker.codes().count(RequestCode.SEND_MESSAGE_V2) == 1
    assert broker.codes()[0] == RequestCode.GET_MAX_OFFSET
    assert ACCESS_KEY_FIELD not in (broker.asked[-1].ext or {})


async def test_who_is_told_a_user_signs_everything(api: ForwardingApi) -> None:
    broker = Broker()
    await sent(api, broker, ShownIdentity(("alice", b"a secret of hers")))
    assert {(one.ext or {})[ACCESS_KEY_FIELD] for one in broker.asked} == {"alice"}


async def test_who_may_not_ask_sends_nothing(api: ForwardingApi) -> None:
    broker = Broker()
    broker.instead[RequestCode.GET_MAX_OFFSET] = lambda command: reply(
        command, ResponseCode.NO_PERMISSION, "is not signed,\nand so on"
    )
    found = await sent(api, broker)
    assert (found.level, found.message) == (
        WARN,
        "orders took no message through b-0: is not signed, and so on, code 16.",
    )
    assert RequestCode.SEND_MESSAGE_V2 not in broker.codes()


async def test_another_message_at_its_place_is_no_way_back(api: ForwardingApi) -> None:
    broker = Broker()
    broker.shown = bytes.swapcase
    found = await sent(api, broker)
    assert (found.level, found.check) == (FAIL, "send")
    assert "cannot be read: another message is at offset 7 of its queue" in found.message


async def test_a_refused_message_is_not_read(api: ForwardingApi) -> None:
    broker = Broker()
    broker.instead[RequestCode.SEND_MESSAGE_V2] = lambda command: reply(
        command, ResponseCode.SYSTEM_ERROR, "no room"
    )
    found = await sent(api, broker)
    assert found.level is FAIL
    assert "acknowledged no message through b-0: no room, code 1." in found.message
    assert broker.codes()[-1] == RequestCode.SEND_MESSAGE_V2


async def test_a_send_without_an_answer_may_be_stored_and_is_not_repeated(
    api: ForwardingApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_trip, "CALL_TIMEOUT_S", 0.5)
    broker = Broker()
    broker.instead[RequestCode.SEND_MESSAGE_V2] = lambda _: None
    found = await sent(api, broker)
    assert found.level is FAIL
    assert "may be stored all the same" in found.message
    assert broker.codes().count(RequestCode.SEND_MESSAGE_V2) == 1


async def test_a_port_where_nobody_listens(api: ForwardingApi) -> None:
    plan = ProbePlan([DiskOf("b-0", names.BROKER, 1)], [SendTo("orders", "b-0", 1, "b-0")], [])
    disk, send = await probe(api, "mq", plan, ProbeWanted(0.0), lambda _: None)
    assert disk.message.startswith("b-0 is not measured: ")
    assert "was not passed on: an error occurred forwarding" in disk.message
    assert send.message.startswith("orders: no message is sent, since there is no way to b-0: ")
    assert (disk.level, send.level) == (WARN, WARN)


async def test_without_the_right_to_forward_one_finding_says_which(api: ForwardingApi) -> None:
    api.refusal = 403
    disks = [DiskOf(f"b-{n}", names.BROKER, 1) for n in range(3)]
    plan = ProbePlan(disks, [SendTo("orders", "b-0", 1, "b-0")], [])
    (found,) = await probe(api, "mq", plan, ProbeWanted(0.0), lambda _: None)
    assert (found.check, found.level) == ("rights", WARN)
    assert "create and get of pods/portforward" in found.todo


async def test_a_probe_that_is_ended_leaves_no_way_open(api: ForwardingApi) -> None:
    """As by Ctrl-C, while it waits for an answer."""
    broker = Broker()
    broker.instead[RequestCode.GET_MAX_OFFSET] = lambda _: None
    task = asyncio.create_task(sent(api, broker))
    while not broker.asked:
        await asyncio.sleep(0.01)
    assert api.open == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    async with asyncio.timeout(60):
        while api.open:
            await asyncio.sleep(0.01)
