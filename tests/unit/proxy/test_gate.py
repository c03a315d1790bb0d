"""The gate before calls, streams whose users change, and on whose behalf brokers are asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gantry_protocol.access.rules import User, make_rule
from gantry_protocol.bodies.client import SubscriptionGroupConfig
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.quorum_key import KeyFile, write_key
from gantry_protocol.recall import RecallHandle
from gantry_protocol.remoting.admission import BEHALF_FIELD, SOURCE_FIELD, Admitted
from gantry_protocol.remoting.signatures import SIGNATURE_FIELD
from gantry_proxy import messages
from gantry_proxy.access import CallGate
from gantry_proxy.clients import Clients
from gantry_proxy.consuming import Consuming
from gantry_proxy.core import demands, handles
from gantry_proxy.core.refusals import CallRefused
from gantry_proxy.core.routes import GroupQueues
from gantry_proxy.lites import Lites
from gantry_proxy.producing import Producing
from gantry_proxy.pulling import Pulling
from gantry_proxy.renewing import Renewals
from gantry_proxy.server import _as_ours
from gantry_proxy.service import Routing, methods
from support.grpc_client import NAMES, FakeCall, settings
from support.told_users import Known

SECRET, OTHER = "secret-of-ada", "secret-of-eve"
HEAR_S = 10.0  # nothing but the loop's next turns is waited for
ADA = User(
    SECRET,
    rules=(
        make_rule("Topic:t", ["Pub", "Sub"]),
        make_rule("Topic:near", ["Pub"], ["10.0.0.0/8"]),
        make_rule("Group:g", ["Sub"]),
    ),
)


@pytest.fixture
def users(tmp_path: Path) -> Known:
    return Known(KeyFile(write_key(tmp_path / "key")))


def ada(**named: str) -> FakeCall:
    return FakeCall(user="ada", secret=SECRET, **named)


def route(topic: str = "t") -> Any:
    wanted = messages.QueryRouteRequest()
    wanted.topic.name = topic
    return wanted


def refused(gate: CallGate, call: FakeCall, wanted: Any = None) -> tuple[str, str] | None:
    try:
        gate.admit("QueryRoute", wanted or route(), call)
    except CallRefused as error:
        return error.code, str(error)
    return None


def test_a_proxy_without_the_key_judges_nobody() -> None:
    gate, call = CallGate(None), FakeCall()
    assert gate.is_ready
    assert refused(gate, call) is None
    assert gate.may_be_asked(call, "t")
    assert call.behalf == {}


def test_nobody_is_served_before_it_is_known_who_may(users: Known) -> None:
    gate = CallGate(users)
    assert not gate.is_ready
    found = refused(gate, ada())
    assert found is not None
    assert found[0] == "INTERNAL_SERVER_ERROR"
    assert not gate.may_be_asked(ada(), "t")
    users.tell(enabled=False)
    call = ada()
    assert gate.is_ready
    assert refused(gate, call) is None
    assert call.behalf == {}
    assert gate.may_be_asked(FakeCall(), "t")


def test_who_may_is_let_in_and_named_to_brokers(users: Known) -> None:
    users.tell(ada=ADA, root=User(OTHER, "Super"))
    gate, call = CallGate(users), ada()
    assert refused(gate, call) is None
    assert call.behalf == {BEHALF_FIELD: "ada", SOURCE_FIELD: "10.0.0.1"}
    root = FakeCall(user="root", secret=OTHER, peer="[::1]:70")
    assert refused(gate, root, route("any")) is None
    assert root.behalf == {BEHALF_FIELD: "root", SOURCE_FIELD: "::1"}
    assert users.allowed == 2


@pytest.mark.parametrize(
    ("call", "wanted", "reason", "sentence"),
    [
        pytest.param(FakeCall(), None, "unsigned", "is not signed, and", id="nobody"),
        pytest.param(
            FakeCall(user="ada", secret=OTHER), None, "signature", "is not known here, or has not",
            id="another secret",
        ),
        pytest.param(
            FakeCall(user="bob", secret=SECRET), None, "signature", "is not known here, or has not",
            id="no user",
        ),
        pytest.param(
            FakeCall(user="off", secret=SECRET), None, "disabled", "is disabled", id="disabled"
        ),
        pytest.param(
            FakeCall(user="ada", secret=SECRET), route("other"), "rules",
            "Pub or Sub on Topic:other from 10.0.0.1", id="another topic",
        ),
        pytest.param(
            FakeCall(user="ada", secret=SECRET, peer="11.0.0.1:5"), route("near"), "rules",
            "from 11.0.0.1", id="another network",
        ),
        pytest.param(
            FakeCall(user="ada", secret=SECRET, peer=""), route("near"), "rules",
            "from an unknown address", id="nobody knows from where",
        ),
    ],
)  # fmt: skip
def test_who_may_not_is_refused_as_upstream_does(
    users: Known, call: FakeCall, wanted: Any, reason: str, sentence: str
) -> None:
    users.tell(ada=ADA, off=User(SECRET, status="disable", rules=ADA.rules))
    found = refused(CallGate(users), call, wanted)
    assert found is not None
    assert found[0] == "UNAUTHORIZED"
    assert sentence in found[1]
    assert users.denied == {reason: 1}
    assert call.behalf == {}


def test_what_is_no_authorization_is_refused_and_not_repeated(
    users: Known, caplog: pytest.LogCaptureFixture
) -> None:
    users.tell(ada=ADA)
    caplog.set_level(logging.INFO, "gantry.access")
    call = ada()
    shown = call.metadata.pop("x-mq-date-time")
    found = refused(CallGate(users), call)
    assert found is not None
    assert "x-mq-date-time is missing" in found[1]
    facts = caplog.records[-1].facts  # type: ignore[attr-defined]
    assert (facts["code"], facts["user"], facts["why"]) == ("QueryRoute", "-", "unsigned")
    assert shown not in caplog.text
    assert call.metadata["authorization"] not in caplog.text


def test_a_method_without_demands_is_a_super_users(
    users: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    users.tell(ada=User(SECRET, rules=(make_rule("*", ["All"]),)), root=User(OTHER, "Super"))
    gate = CallGate(users)
    assert refused(gate, ada()) is None
    monkeypatch.setattr("gantry_proxy.access.TABLE", {**demands.TABLE} | {"QueryRoute": None})
    found = refused(gate, ada())
    assert found is not None
    assert "super users may" in found[1]
    assert refused(gate, FakeCall(user="root", secret=OTHER)) is None


# ---- what is asked of brokers


class Masters:
    """One group, which has every topic; notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[RemotingCommand] = []

    async def route(self, topic: str) -> tuple[GroupQueues, ...]:
        return (GroupQueues("orders-a", "a:1", 1, 1),)

    async def place(self, topic: str, broker_name: str) -> str:
        return "a:1"

    async def consumer_group(self, topic: str, name: str) -> SubscriptionGroupConfig:
        return SubscriptionGroupConfig(name)

    async def call(self, address: str, make: Any, within_s: float, **_: object) -> RemotingCommand:
        self.asked.append(make())
        raise CallRefused("PROXY_TIMEOUT", "nobody answers")

    carry_out = call

    async def poll(
        self, address: str, command: RemotingCommand, within_s: float
    ) -> RemotingCommand:
        return await self.call(address, lambda: command, within_s)


RECEIPT = handles.receipt(0, 50, 60_000, 0, ("orders-a", 2, 1, 7))


def calls() -> dict[str, tuple[Any, RequestCode]]:
    """A request of each method that brokers are asked for, of user ada."""
    made: dict[str, Any] = {
        name: getattr(messages, f"{name}Request")()
        for name in (
            "SendMessage", "EndTransaction", "RecallMessage", "ReceiveMessage", "AckMessage",
            "ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue", "UpdateOffset",
            "GetOffset", "QueryOffset", "PullMessage",
        )
    }  # fmt: skip
    for name, wanted in made.items():
        if hasattr(wanted, "group"):
            wanted.group.name = "g"
        if hasattr(wanted, "topic"):
            wanted.topic.name = "t"
        if hasattr(wanted, "message_queue"):
            wanted.message_queue.topic.name = "t"
            wanted.message_queue.broker.name = "orders-a"
        if hasattr(wanted, "receipt_handle"):
            wanted.receipt_handle = RECEIPT
        if name == "ReceiveMessage":
            wanted.invisible_duration.FromMilliseconds(10_000)
    sent = made["SendMessage"].messages.add(body=b"x")
    sent.topic.name, sent.system_properties.message_id = "t", "id"
    made["AckMessage"].entries.add(receipt_handle=RECEIPT)
    half = handles.Transaction("orders-a", "t", 1, 2, "id", "id")
    made["EndTransaction"].transaction_id = handles.pack(half)
    made["RecallMessage"].recall_handle = RecallHandle("t", "orders-a", 1, "id").pack()
    code = RequestCode
    asked = {
        "SendMessage": code.SEND_MESSAGE_V2,
        "EndTransaction": code.END_TRANSACTION,
        "RecallMessage": code.RECALL_MESSAGE,
        "ReceiveMessage": code.POP_MESSAGE,
        "AckMessage": code.ACK_MESSAGE,
        "ChangeInvisibleDuration": code.CHANGE_MESSAGE_INVISIBLETIME,
        "ForwardMessageToDeadLetterQueue": code.CONSUMER_SEND_MSG_BACK,
        "UpdateOffset": code.UPDATE_CONSUMER_OFFSET,
        "GetOffset": code.QUERY_CONSUMER_OFFSET,
        "QueryOffset": code.GET_MIN_OFFSET,
        "PullMessage": code.PULL_MESSAGE,
    }
    return {name: (made[name], asked[name]) for name in made}


class Service:
    """The service as a proxy has it, before brokers that answer nothing."""

    def __init__(self, users: Known) -> None:
        self.masters = Masters()
        gate, masters = CallGate(users), self.masters
        self.clients = Clients(masters, gate)  # type: ignore[arg-type]
        self.renewals = Renewals(masters, self.clients.is_there)  # type: ignore[arg-type]
        self.methods = methods(
            gate,
            Routing(masters),  # type: ignore[arg-type]
            Producing(masters),  # type: ignore[arg-type]
            Consuming(masters, self.renewals),  # type: ignore[arg-type]
            Pulling(masters),  # type: ignore[arg-type]
            self.clients,
            Lites(masters, self.clients),  # type: ignore[arg-type]
        )

    async def ask(self, name: str, wanted: Any, call: FakeCall) -> str:
        """The name of the answer's status."""
        data = wanted.SerializeToString()
        if name in self.methods.streaming:
            answers = [item async for item in self.methods.streaming[name](data, call)]
            answer = answers[0]
        else:
            answer = await self.methods.unary[name](data, call)
        found = getattr(messages, f"{name}Response").FromString(answer)
        return NAMES[found.status.code]


@pytest.mark.parametrize("name", calls())
async def test_brokers_are_asked_on_behalf_of_the_user(users: Known, name: str) -> None:
    """Whatever is passed on says whose it is; a broker finds it allowed by its own table."""
    users.tell(ada=ADA)
    service = Service(users)
    wanted, code = calls()[name]
    await service.ask(name, wanted, ada())
    (asked,) = service.masters.asked
    assert asked.code == code
    ext = asked.ext or {}
    assert (ext[BEHALF_FIELD], ext[SOURCE_FIELD]) == ("ada", "10.0.0.1")
    assert isinstance(users.users.admit_for("ada", asked, "10.0.0.1"), Admitted)
    assert SIGNATURE_FIELD in (_as_ours(users, asked).ext or {})
    users.tell(enabled=False)
    await service.ask(name, wanted, ada())
    later = service.masters.asked[-1]
    assert BEHALF_FIELD not in (later.ext or {})
    assert SIGNATURE_FIELD not in (_as_ours(users, later).ext or {})


@pytest.mark.parametrize("name", sorted({*demands.TABLE} - {"Telemetry"}))
async def test_no_method_is_served_for_who_may_not(users: Known, name: str) -> None:
    users.tell(ada=ADA)
    service = Service(users)
    wanted = getattr(messages, f"{name}Request")()
    if name == "SendMessage":
        wanted.messages.add().topic.name = "other"
    elif hasattr(wanted, "group"):
        wanted.group.name = "other"
    elif hasattr(wanted, "topic"):
        wanted.topic.name = "other"
    for call in (FakeCall(), FakeCall(user="ada", secret=OTHER), ada()):
        assert await service.ask(name, wanted, call) == "UNAUTHORIZED"
    assert service.masters.asked == []


def test_name_servers_are_shown_no_signature(users: Known) -> None:
    """One that is no controller could send it again."""
    users.tell(ada=ADA)
    route = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"})
    assert _as_ours(users, route).ext == {"topic": "t"}
    config = request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    assert SIGNATURE_FIELD in (_as_ours(users, config).ext or {})


# ---- streams


class Talk:
    """A client's stream, and what it hears."""

    def __init__(self, clients: Clients, call: FakeCall) -> None:
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self._heard = clients.telemetry(self._commands(), call)

    async def _commands(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._said.get()

    def say(self, command: Any) -> None:
        self._said.put_nowait(command.SerializeToString())

    async def hear(self) -> tuple[str, str]:
        """Code and kind of the next command; ``ended`` when there is none."""
        async with asyncio.timeout(HEAR_S):
            try:
                data = await anext(self._heard)
            except StopAsyncIteration:
                return "ended", ""
        command = messages.TelemetryCommand.FromString(data)
        return NAMES[command.status.code], command.WhichOneof("command") or ""

    async def tells(self, command: Any) -> tuple[str, str]:
        self.say(command)
        return await self.hear()


OK, ENDED, DENIED = ("OK", "settings"), ("ended", ""), ("UNAUTHORIZED", "")


@pytest.fixture
async def service(users: Known) -> AsyncIterator[Service]:
    made = Service(users)
    users.listen_for_news(made.clients.users_changed)
    task = asyncio.create_task(made.clients.run())
    yield made
    task.cancel()


async def test_a_stream_is_let_in_as_what_is_said_on_it(users: Known, service: Service) -> None:
    users.tell(ada=ADA)
    for call in (FakeCall(), FakeCall(user="ada", secret=OTHER)):
        stranger = Talk(service.clients, call)
        assert [await stranger.hear(), await stranger.hear()] == [DENIED, ENDED]
    talk = Talk(service.clients, ada())
    assert await talk.tells(settings(topics=("t",))) == OK
    assert await talk.tells(settings(topics=("t", "other"))) == DENIED
    assert await talk.hear() == ENDED
    assert service.clients.streams == {}
    consumer = Talk(service.clients, ada())
    assert await consumer.tells(settings(group="other", topics=("t",))) == DENIED
    assert await consumer.hear() == ENDED
    await asyncio.sleep(0)
    assert not service.clients._open


CHANGES = {
    "deleted": {},
    "disabled": {"ada": User(SECRET, status="disable", rules=ADA.rules)},
    "another-secret": {"ada": User(OTHER, rules=ADA.rules)},
    "fewer-rules": {"ada": User(SECRET, rules=ADA.rules[1:])},
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_stream_ends_when_its_user_may_no_longer(
    users: Known, service: Service, change: str
) -> None:
    users.tell(ada=ADA, eve=User(OTHER, "Super"))
    talk, other = Talk(service.clients, ada()), Talk(service.clients, FakeCall("e", "eve", OTHER))
    assert await talk.tells(settings(topics=("t",))) == OK
    assert await other.tells(settings(topics=("t",))) == OK
    assert len(service.clients.senders("t")) == 2
    users.tell(ada=User(SECRET, rules=(*ADA.rules, make_rule("Topic:more", ["Pub"]))),
               eve=User(OTHER, "Super"))  # fmt: skip
    await asyncio.sleep(0.01)
    assert len(service.clients.streams) == 2
    users.tell(**CHANGES[change], eve=User(OTHER, "Super"))
    assert len(service.clients.senders("t")) == 1, "at once, whoever has been judged again by then"
    assert [await talk.hear(), await talk.hear()] == [DENIED, ENDED]
    assert [key for key, _ in service.clients.streams.items()] == [("eve", "e")]
    assert service.clients.ended_streams == 1
    assert await other.tells(settings(topics=("t",))) == OK


async def test_streams_of_nobody_end_when_access_is_turned_on(
    users: Known, service: Service
) -> None:
    users.tell(enabled=False, ada=ADA)
    nobody, signed = Talk(service.clients, FakeCall("n")), Talk(service.clients, ada())
    for talk in (nobody, signed):
        assert await talk.tells(settings(topics=("t",))) == OK
    users.tell(ada=ADA)
    assert [await nobody.hear(), await nobody.hear()] == [DENIED, ENDED]
    assert [stream.call.behalf for stream in service.clients.streams.values()] == [
        {BEHALF_FIELD: "ada", SOURCE_FIELD: "10.0.0.1"}
    ]
    users.tell(enabled=False, ada=ADA)
    assert await signed.tells(settings(topics=("other",))) == OK


async def test_a_stream_that_takes_nothing_is_ended_all_the_same(
    users: Known, service: Service
) -> None:
    users.tell(ada=ADA)
    talk = Talk(service.clients, ada())
    assert await talk.tells(settings(topics=("t",))) == OK
    (stream,) = service.clients.streams.values()
    while stream.tell(messages.TelemetryCommand()):
        pass
    users.tell()
    await asyncio.sleep(0.01)
    assert [await talk.hear(), await talk.hear()] == [DENIED, ENDED]


async def test_a_user_ends_no_client_but_its_own(users: Known, service: Service) -> None:
    """Clients choose their names themselves."""
    users.tell(ada=ADA, eve=User(OTHER, rules=ADA.rules))
    talk = Talk(service.clients, ada())
    assert await talk.tells(settings(topics=("t",))) == OK
    wanted = messages.NotifyClientTerminationRequest()
    eve = FakeCall(user="eve", secret=OTHER)
    assert await service.ask("NotifyClientTermination", wanted, eve) == "OK"
    assert len(service.clients.streams) == 1
    same = Talk(service.clients, eve)
    assert await same.tells(settings(topics=("t",))) == OK
    assert len(service.clients.senders("t")) == 2
    assert await service.ask("NotifyClientTermination", wanted, ada()) == "OK"
    assert await talk.hear() == ENDED
    assert len(service.clients.streams) == 1
