"""The admin API's routes that move leadership and change who takes part (docs/controllers.md).

The leader answers, others send to it. An answer comes when the change is committed, or when the
next leader is known, and shows the quorum as this node then sees it. What would not be safe or not
be wise is refused with 409 and the core's own sentence; nothing is retried here.
"""

from collections.abc import Callable
from typing import Protocol

from aiohttp import web
from gantry_protocol.admin import MemberRequest, TransferRequest
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.types import Index, NodeId

from gantry_controller.admin.api import AdminApi, ApiRefusal, Handler, read_body
from gantry_controller.node.handover import TransferDone
from gantry_controller.node.pending import Done
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.errors import ChangeRefused
from gantry_controller.raft.members import Membership
from gantry_controller.requests import ADMIN
from gantry_controller.settings import parse_peers


class Node(Protocol):
    """The part of the Raft node that these routes need."""

    def change(self, begin: Callable[[RaftCore], Index], done: Done) -> None:
        """Calls ``done`` with the ``Membership`` once it is committed, or with an exception."""

    def transfer(self, target: NodeId | None, done: TransferDone) -> None:
        """Calls ``done`` with the next leader, or with an exception."""


class MembersApi:
    """See the module.

    Args:
        api: the other routes, whose ways of waiting and refusing are shared.
        node: the Raft node.
    """

    def __init__(self, api: AdminApi, node: Node) -> None:
        self._api = api
        self._node = node

    def add_to(self, server: HttpServer) -> None:
        """Serves the routes on ``server``."""
        members = "/v1/quorum/members"
        routes: list[tuple[str, str, Handler]] = [
            ("POST", "/v1/quorum/transfer", self._transfer),
            ("POST", members, self._add),
            ("POST", members + "/{id}/promote", self._promote),
            ("DELETE", members + "/{id}", self._remove),
        ]
        for method, path, handler in routes:
            server.add_route(method, path, self._api.guarded(handler, ADMIN[method, path]))

    async def _transfer(self, request: web.Request) -> web.Response:
        wish = await read_body(request, TransferRequest)
        target = None if wish.target is None else NodeId(wish.target)
        outcome = await self._api.asked(lambda done: self._node.transfer(target, done))
        return self._answer(outcome, int)

    async def _add(self, request: web.Request) -> web.Response:
        wish = await read_body(request, MemberRequest)
        try:
            peers = parse_peers(f"{wish.node}={wish.address}")
        except ValueError as error:
            raise ApiRefusal(400, "INVALID_REQUEST", f"address: {error}.") from error
        if len(peers) != 1:
            raise ApiRefusal(
                400, "INVALID_REQUEST", f"address: {wish.address!r} is not one address."
            )
        node, contact = peers[0].node_id, peers[0].contact
        return await self._change(lambda core: core.add_learner(node, contact))

    async def _promote(self, request: web.Request) -> web.Response:
        node = _node(request)
        return await self._change(lambda core: core.promote(node))

    async def _remove(self, request: web.Request) -> web.Response:
        node = _node(request)
        return await self._change(lambda core: core.remove(node))

    async def _change(self, begin: Callable[[RaftCore], Index]) -> web.Response:
        outcome = await self._api.asked(lambda done: self._node.change(begin, done))
        return self._answer(outcome, Membership)

    def _answer(self, outcome: object, expected: type) -> web.Response:
        if isinstance(outcome, ChangeRefused):
            raise ApiRefusal(409, "REFUSED", str(outcome))
        if not isinstance(outcome, expected):
            raise self._api.refusal(outcome)
        return self._api.quorum()


def _node(request: web.Request) -> NodeId:
    text = request.match_info["id"]
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ApiRefusal(400, "INVALID_REQUEST", f"{text!r} is no number of a member.")
    return NodeId(int(text))
