"""One controller node's handlers on a quorum that exists in name only.

``FakeQuorum`` applies what is proposed at once (or when told to); ``Harness`` wires the real
dispatcher, handlers, watchman and state machine to it and speaks to them in remoting commands.
"""

from collections.abc import Callable
from typing import Any

from gantry_controller.liveness.core.probes import Knock
from gantry_controller.liveness.core.table import BrokerSigns
from gantry_controller.liveness.watchman import Watchman
from gantry_controller.metadata.events import Event, encode_event
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup
from gantry_controller.nameserver.imports import Imports
from gantry_controller.nameserver.requests import NameRequests
from gantry_controller.raft.errors import NotLeader, ReadRedirect
from gantry_controller.remoting.control import ControllerRequests
from gantry_controller.remoting.dispatcher import Dispatcher
from gantry_controller.remoting.guard import Guard
from gantry_controller.remoting.live_settings import LiveSettings
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.headers.controller import GetMetadataResponseHeader
from gantry_protocol.quorum_key import NO_KEY, KeyFile
from gantry_protocol.types import BrokerId, Index, NodeId, Term

CLUSTER = "c"
NAME = "broker-a"


class FakeQuorum:
    """A quorum of one voice: node 1 leads unless told otherwise."""

    def __init__(self, machine: MetadataStateMachine) -> None:
        self.machine = machine
        self.node_id = NodeId(1)
        self.leader_id: NodeId | None = NodeId(1)
        self.is_serving_leader = True
        self.index = 0
        self.holding = False
        self.held: list[Callable[[], None]] = []
        self.reads = 0
        self.lease = False
        self.redirects = 0  # of so many reads, since it lags
        self.outcome: Exception | None = None  # of every proposal, instead of applying it

    def propose(self, command: bytes, done: Callable[[Any], None]) -> None:
        if self.outcome is not None:
            done(self.outcome)
        elif self.leader_id != self.node_id:
            done(NotLeader(self.leader_id))
        else:
            self._run(lambda: done(self._apply(command)))

    def read(self, done: Callable[[Exception | None], None], *, anywhere: bool = False) -> None:
        self.reads += 1
        if anywhere and self.redirects:
            self.redirects -= 1
            done(ReadRedirect(self.leader_id, "since it lags"))
        elif self.leader_id is None or (self.leader_id != self.node_id and not anywhere):
            done(NotLeader(self.leader_id))
        else:
            self._run(lambda: done(None))

    def set_lease(self, done: Callable[[Any], None], *, on: bool) -> None:
        if self.leader_id != self.node_id:
            done(NotLeader(self.leader_id))
        else:
            self.lease = on
            done(None)

    def release(self) -> None:
        held, self.held = self.held, []
        for action in held:
            action()

    def follow(self, leader: int | None) -> None:
        self.leader_id = None if leader is None else NodeId(leader)
        self.is_serving_leader = False

    def _run(self, action: Callable[[], None]) -> None:
        if self.holding:
            self.held.append(action)
        else:
            action()

    def _apply(self, command: bytes) -> Result:
        self.index += 1
        return self.machine.apply(Index(self.index), Term(1), command)


class FakeForwarder:
    """Notes what is passed on; the test answers."""

    def __init__(self) -> None:
        self.passed_on: list[tuple[NodeId, RemotingCommand]] = []
        self.answer: RemotingCommand | Exception | None = None

    def forward(
        self,
        leader: NodeId,
        command: RemotingCommand,
        done: Callable[[RemotingCommand | Exception], None],
    ) -> None:
        self.passed_on.append((leader, command))
        if self.answer is not None:
            done(self.answer)


class FakeConnection:
    """Keeps the answers that come later; by default it has shown the quorum's key."""

    def __init__(self, number: int, *, believed: bool = True) -> None:
        self.id = number
        self.believed = believed
        self.peer = "127.0.0.1:50000"
        self.attrs: dict[str, Any] = {}
        self.replies: list[RemotingCommand] = []

    def reply(self, _request: RemotingCommand, response: RemotingCommand) -> None:
        self.replies.append(response)


def describe() -> GetMetadataResponseHeader:
    """Who leads, whoever asks."""
    return GetMetadataResponseHeader("g", True, "n1:h:1;", "n1", "h:1")


def listing() -> dict[str, str]:
    """The node's own settings."""
    return {"name": "controller-0", "bind": "127.0.0.1"}


class Harness:
    """The handlers of node 1; must be made inside a running event loop."""

    def __init__(self, key: KeyFile = NO_KEY, *, is_open: bool = False) -> None:
        self.machine = MetadataStateMachine()
        self.quorum = FakeQuorum(self.machine)
        self.forwarder = FakeForwarder()
        self.knocks: list[str] = []
        self.knock = Knock.REFUSED
        self.watchman = Watchman(
            self.machine, self.quorum.propose, default_timeout_s=2.5, knocker=self._knock
        )
        self.dispatcher = Dispatcher(
            self.quorum,
            self.forwarder,  # type: ignore[arg-type]  # a fake of the same shape
            lambda: self.machine.state.index,
            describe,
            Guard(key, is_open=is_open),
        )
        self.imports = Imports(self.machine, self.quorum.propose, lambda: True)
        self.requests = ControllerRequests(
            self.dispatcher,
            self.machine,
            self.watchman,
            describe=describe,
            listing=listing,
            live_settings=LiveSettings(),
            default_timeout_s=2.5,
            refresh=self.imports.refreshed,
        )
        self.names = NameRequests(self.dispatcher, self.machine, self.imports, listing)
        self.watchman.role_changed(leading=True)

    async def _knock(self, address: str) -> Knock:
        self.knocks.append(address)
        return self.knock

    def row(self, broker_id: int) -> BrokerSigns:
        """What the node has heard of the broker, which must be something."""
        row = self.watchman.table.row((CLUSTER, NAME), BrokerId(broker_id))
        assert row is not None
        return row

    def die(self, broker_id: int) -> None:
        """The broker's connection closes, and its address refuses."""
        member, connection = (CLUSTER, NAME, BrokerId(broker_id)), self.row(broker_id).connection
        assert connection is not None
        self.watchman.table.closed(connection)
        assert self.watchman.table.refuse(member, connection)

    async def close(self) -> None:
        self.requests.fronts.polls.close()
        self.requests.queue_maps.polls.close()
        self.requests.users.polls.close()
        self.dispatcher.close()
        self.imports.stop()
        await self.watchman.stop()

    @property
    def group(self) -> BrokerGroup:
        return self.machine.state.groups[CLUSTER, NAME]

    def call(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        connection: int = 1,
    ) -> RemotingCommand:
        """The answer to a request, which must have come at once."""
        answers = self.ask(code, ext, body, connection=connection)
        assert len(answers) == 1, answers
        return answers[0]

    def ask(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        connection: int = 1,
    ) -> list[RemotingCommand]:
        """The list that the answer is in, or will be."""
        stub = FakeConnection(connection)
        command = request(code, ext, body)
        answer = self.dispatcher.handle(stub, command)  # type: ignore[arg-type]  # a fake of the same shape
        if answer is not None:
            stub.replies.append(answer)
        return stub.replies

    def apply(self, event: Event) -> Result:
        result = self.quorum._apply(encode_event(event))
        assert result.ok, result
        return result

    # What brokers do.

    def heartbeat(self, broker_id: int, *, connection: int | None = None, **ext: str) -> None:
        fields = {
            "clusterName": CLUSTER,
            "brokerName": NAME,
            "brokerAddr": address(broker_id),
            "brokerId": str(broker_id),
            "epoch": "1",
            "maxOffset": "10",
            **ext,
        }
        self.call(904, fields, connection=broker_id if connection is None else connection)

    def join(self, broker_id: int, **ext: str) -> RemotingCommand:
        """1012, 1013, 1003 as a Java broker sends them; ``ext`` goes with the last."""
        named = {"clusterName": CLUSTER, "brokerName": NAME}
        assert self.call(1012, named).ext == {**named, "nextBrokerId": str(broker_id)}
        code = f"{address(broker_id)};17"
        applied = {**named, "appliedBrokerId": str(broker_id), "registerCheckCode": code}
        assert self.call(1013, applied).code == 0
        return self.register(broker_id, **ext)

    def register(self, broker_id: int, **ext: str) -> RemotingCommand:
        fields = {
            "clusterName": CLUSTER,
            "brokerName": NAME,
            "brokerId": str(broker_id),
            "brokerAddress": address(broker_id),
            **ext,
        }
        return self.call(1003, fields, connection=broker_id)

    def elect(self, broker_id: int, **ext: str) -> RemotingCommand:
        fields = {
            "clusterName": CLUSTER,
            "brokerName": NAME,
            "brokerId": str(broker_id),
            "designateElect": "false",
            **ext,
        }
        return self.call(1002, fields, connection=broker_id)

    def alter(self, master: int, epoch: int, body: bytes) -> RemotingCommand:
        ext = {"brokerName": NAME, "masterBrokerId": str(master), "masterEpoch": str(epoch)}
        return self.call(1001, ext, body, connection=master)


def address(broker_id: int) -> str:
    return f"127.0.0.{broker_id}:10911"
