"""The routes that change the quorum: what they pass on, and what each outcome is answered with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from gantry_controller.admin.api import AdminApi
from gantry_controller.admin.members import MembersApi
from gantry_controller.admin.watch import WatchHub
from gantry_controller.node.pending import ProposalDropped
from gantry_controller.raft.errors import ChangeRefused, NotLeader
from gantry_controller.raft.members import Membership
from gantry_protocol.admin import PeerView, QuorumView
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.types import Index, NodeId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from support.controller_dispatcher import Harness

LEADER = "http://other:9880"
VIEW = QuorumView(
    cluster_uid="u",
    node_id=1,
    name="n",
    term=1,
    role="leader",
    commit_index=1,
    applied_index=1,
    peers=[PeerView(id=4, name="n", address="h:9879", role="learner", priority=2)],
)


class Node:
    """Notes what it is asked, and answers with ``outcome``."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.outcome: Any = None

    def add_learner(self, node: NodeId, address: str) -> Index:
        return self._ask("add", node, address)

    def promote(self, node: NodeId) -> Index:
        return self._ask("promote", node)

    def remove(self, node: NodeId) -> Index:
        return self._ask("remove", node)

    def change(self, begin: Callable[[Any], Index], done: Callable[[Any], None]) -> None:
        begin(self)
        done(Membership((NodeId(1),)) if self.outcome is None else self.outcome)

    def transfer(self, target: NodeId | None, done: Callable[[Any], None]) -> None:
        self._ask("transfer", target)
        done(NodeId(3) if self.outcome is None else self.outcome)

    def _ask(self, *what: object) -> Index:
        self.asked.append(what)
        return Index(1)


class Dispatcher:
    def __init__(self, node: Node, session: aiohttp.ClientSession) -> None:
        self.node = node
        self.session = session

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, path, data=data) as response:
            return response.status, await response.json()


@pytest.fixture
async def dispatcher(harness: Harness) -> AsyncIterator[Dispatcher]:
    hub = WatchHub(harness.machine, harness.quorum.read, harness.watchman.liveness_changes)
    api = AdminApi(
        harness.quorum,
        harness.machine,
        harness.watchman,
        hub,
        describe=lambda: VIEW,
        leader_http=lambda: LEADER,
        peers_http=lambda: [LEADER],
    )
    node = Node()
    server = HttpServer(ready=lambda: (True, "ok"), token="secret")
    MembersApi(api, node).add_to(server)
    port = await server.start("127.0.0.1", 0)
    headers = {"Authorization": "Bearer secret"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as session:
        yield Dispatcher(node, session)
    await server.stop()


MEMBERS = "/v1/quorum/members"
REQUESTS: list[tuple[str, str, object, tuple[object, ...]]] = [
    ("POST", "/v1/quorum/transfer", {"target": 3}, ("transfer", 3)),
    ("POST", "/v1/quorum/transfer", {}, ("transfer", None)),
    ("POST", MEMBERS, {"node": 4, "address": "h4"}, ("add", 4, "h4:9879:9878:9880")),
    (
        "POST",
        MEMBERS,
        {"node": 4, "address": "[::1]:1:2:3", "learner": True},
        ("add", 4, "[::1]:1:2:3"),
    ),
    ("POST", MEMBERS + "/4/promote", None, ("promote", 4)),
    ("DELETE", MEMBERS + "/2", None, ("remove", 2)),
]


@pytest.mark.parametrize(("method", "path", "body", "asked"), REQUESTS)
async def test_a_request_reaches_the_node_and_shows_the_quorum(
    dispatcher: Dispatcher, method: str, path: str, body: object, asked: tuple[object, ...]
) -> None:
    status, view = await dispatcher.call(method, path, body)
    assert (status, dispatcher.node.asked) == (200, [asked])
    assert (view["peers"][0]["role"], view["peers"][0]["priority"]) == ("learner", 2)


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        (ChangeRefused("Not now."), 409, "REFUSED"),
        (NotLeader(NodeId(3)), 421, "NOT_LEADER"),
        (ProposalDropped(), 503, "NO_QUORUM"),
    ],
    ids=["refused", "another leads", "unknown"],
)
@pytest.mark.parametrize(("method", "path", "body", "asked"), REQUESTS[1:3])
async def test_what_went_wrong_has_a_code_and_a_sentence(
    dispatcher: Dispatcher,
    method: str,
    path: str,
    body: object,
    asked: tuple[object, ...],
    outcome: Exception,
    status: int,
    code: str,
) -> None:
    dispatcher.node.outcome = outcome
    got, view = await dispatcher.call(method, path, body)
    assert (got, view["error"], view["message"]) == (status, code, str(outcome))


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("POST", MEMBERS, {"node": 0, "address": "h"}, "node: "),
        ("POST", MEMBERS, {"node": 4, "address": "h:x"}, "is not number=host"),
        ("POST", MEMBERS, {"node": 4, "address": "h,5=i"}, "is not one address"),
        ("POST", MEMBERS, {"node": 4, "address": "h:70000"}, "1..65535"),
        ("POST", MEMBERS, {"node": 4, "address": "h", "learner": False}, "learner: "),
        ("POST", MEMBERS, {"node": 4, "address": "h", "voter": True}, "voter: "),
        ("POST", "/v1/quorum/transfer", {"target": "x"}, "target: "),
        ("POST", MEMBERS + "/four/promote", None, "'four' is no number"),
        ("DELETE", MEMBERS + "/99999999999", None, "is no number"),
    ],
)
async def test_bad_input_reaches_nobody(
    dispatcher: Dispatcher, method: str, path: str, body: object, words: str
) -> None:
    status, view = await dispatcher.call(method, path, body)
    assert (status, view["error"], dispatcher.node.asked) == (400, "INVALID_REQUEST", [])
    assert words in view["message"]
