"""The admin API's routes.

Each route has its row in ``gantry_controller.requests``. Everything but /v1/quorum is answered by
the leader, after a linearizable read; other nodes answer 421 with its address, which nobody follows
blindly. Groups are shown by a follower as well if the query says ``anywhere``. The list of all
groups comes in pages (``GroupList``), each made in turns of the loop. Bodies are bounded,
unknown keys refused, every wait has an end. Errors are ``ErrorView``s with a stable code.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from aiohttp import web
from gantry_protocol.admin import (
    AcceptLossRequest,
    AdoptRequest,
    DrainRequest,
    ElectRequest,
    ErrorView,
    EvidenceRequest,
    FenceRequest,
    ForgetRequest,
    GroupDeclaration,
    GroupList,
    GroupView,
    LeaseRequest,
    QuorumView,
    RetireRequest,
    WatchEvent,
)
from gantry_protocol.codes import ResponseCode
from gantry_protocol.process import log
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.types import BrokerId, Epoch, Offset
from pydantic import BaseModel, ValidationError

from gantry_controller.admin import pages
from gantry_controller.admin.views import group_view, watch_event
from gantry_controller.admin.watch import Watcher, WatchHub
from gantry_controller.liveness.watchman import NOT_HEARD, Watchman
from gantry_controller.metadata.events import (
    AcceptLoss,
    AdoptGroup,
    DeclareGroup,
    DrainGroup,
    ElectMaster,
    EndDrain,
    Event,
    FenceMember,
    ForgetMember,
    RemoveGroup,
    RetireGroup,
    encode_event,
)
from gantry_controller.metadata.listeners import listeners_of
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.preference import places_of
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup
from gantry_controller.raft.errors import NotLeader, Overloaded
from gantry_controller.requests import ADMIN, Answerer, Consistency, RequestClass
from gantry_controller.turns import WAITING_MAX

ANSWER_WITHIN_S = 2.5
GROUPS_PER_TURN = 50  # shown before other work gets its turn: a few milliseconds
WRITE_WITHIN_S = 5.0  # a watcher that takes nothing for so long is dropped

ModelT = TypeVar("ModelT", bound=BaseModel)
ResultT = TypeVar("ResultT")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_log = log.get("admin")


class Quorum(Protocol):
    """The part of the Raft node that the API needs."""

    def propose(self, command: bytes, done: Callable[[Any], None]) -> None:
        """Calls ``done`` with the result of applying ``command``, or with an exception."""

    def read(self, done: Callable[[Exception | None], None], *, anywhere: bool = False) -> None:
        """Calls ``done`` with None once the local state is as new as this call."""

    def set_lease(self, done: Callable[[Any], None], *, on: bool) -> None:
        """Calls ``done`` with None once the setting is committed, or with an exception."""


class ApiRefusal(Exception):  # noqa: N818 - an outcome of a request, not a fault
    """An answer that is not the asked one."""

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        leader: str | None = None,
        peers: list[str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.view = ErrorView(error=error, message=message, leader=leader, peers=peers or [])


class AdminApi:
    """The routes of one node.

    Args:
        quorum: the Raft node.
        machine: its applied state.
        watchman: who is alive.
        hub: the watchers.
        describe: the answer of /v1/quorum.
        leader_http: the base URL of the leader's API, None while none is known.
        peers_http: the base URLs of all members' APIs.

    Attributes:
        expired: requests that the quorum did not answer in time.
        lists: lists of groups that are being made.
        lists_refused: those beyond the bound.
    """

    def __init__(
        self,
        quorum: Quorum,
        machine: MetadataStateMachine,
        watchman: Watchman,
        hub: WatchHub,
        *,
        describe: Callable[[], QuorumView],
        leader_http: Callable[[], str | None],
        peers_http: Callable[[], list[str]],
    ) -> None:
        self.expired = 0
        self.lists = 0
        self.lists_refused = 0
        self._gate = hub.gate
        self._quorum = quorum
        self._machine = machine
        self._watchman = watchman
        self._hub = hub
        self._describe = describe
        self._leader_http = leader_http
        self._peers_http = peers_http

    def add_to(self, server: HttpServer) -> None:
        """Serves the routes on ``server``."""
        group = "/v1/groups/{cluster}/{name}"
        routes: list[tuple[str, str, Handler]] = [
            ("GET", "/v1/quorum", self._get_quorum),
            ("PUT", "/v1/quorum/lease", self._put_lease),
            ("GET", "/v1/groups", self._get_groups),
            ("GET", group, self._get_group),
            ("PUT", group, self._put_group),
            ("DELETE", group, self._delete_group),
            ("POST", group + "/retire", self._retire),
            ("PUT", group + "/drain", self._drain),
            ("DELETE", group + "/drain", self._end_drain),
            ("POST", group + "/forget", self._forget),
            ("PUT", group + "/fence", self._fence),
            ("POST", group + "/elect", self._elect),
            ("POST", group + "/accept-loss", self._accept_loss),
            ("POST", group + "/adopt", self._adopt),
            ("POST", group + "/evidence", self._evidence),
            ("GET", "/v1/watch", self._watch),
        ]
        for method, path, handler in routes:
            server.add_route(method, path, self.guarded(handler, ADMIN[method, path]))

    def guarded(self, handler: Handler, row: RequestClass) -> Handler:
        """``handler``, once the state is as new as its row in the table demands.

        A write waits as well: what it looks at decides whether and which event it makes.
        """

        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                if row.consistency is not Consistency.LOCAL:
                    any_will_do = row.answerer is Answerer.ANY_AT_READ_INDEX
                    await self._catch_up(anywhere=any_will_do and "anywhere" in request.query)
                return await handler(request)
            except ApiRefusal as refusal:
                return web.json_response(text=refusal.view.to_json(), status=refusal.status)

        return guarded

    # Routes.

    async def _get_quorum(self, _: web.Request) -> web.Response:
        return self.quorum()

    async def _put_lease(self, request: web.Request) -> web.Response:
        wish = await read_body(request, LeaseRequest)
        outcome = await self.asked(lambda done: self._quorum.set_lease(done, on=wish.enabled))
        if outcome is not None:
            raise self.refusal(outcome)
        return _json(self._describe())

    async def _get_groups(self, request: web.Request) -> web.Response:
        page = self._page(request)
        views: list[GroupView] = []
        with self.place_in_line():
            for start in range(0, len(page.groups), GROUPS_PER_TURN):
                some = page.groups[start : start + GROUPS_PER_TURN]
                views += await self._gate.bit(partial(self._views, some))
            listed = GroupList(index=page.index, groups=views, continue_token=page.token)
            return await self._gate.bit(partial(_json, listed))

    def _page(self, request: web.Request) -> pages.Page:
        limit, token = request.query.get("limit", ""), request.query.get("continue")
        if limit and not (limit.isascii() and limit.isdigit() and int(limit[:9]) > 0):
            raise ApiRefusal(400, "INVALID_REQUEST", f"limit={limit!r} is no number from 1 on.")
        groups_max = min(int(limit[:9] or pages.LIMIT_MAX), pages.LIMIT_MAX)
        try:
            after = None if token is None else pages.key_of(token)
        except ValueError as error:
            raise ApiRefusal(400, "INVALID_REQUEST", str(error)) from error
        return pages.page_after(self._machine.state, after, groups_max)

    def _views(self, groups: list[BrokerGroup]) -> list[GroupView]:
        return [group_view(group, self._watchman) for group in groups]

    @contextmanager
    def place_in_line(self) -> Iterator[None]:
        """Raises Refusal: too many lists are being made already."""
        if self.lists >= WAITING_MAX:
            self.lists_refused += 1
            message = f"{WAITING_MAX} lists are being made already; try again in a moment."
            raise ApiRefusal(429, "OVERLOADED", message)
        self.lists += 1
        try:
            yield
        finally:
            self.lists -= 1

    async def _get_group(self, request: web.Request) -> web.Response:
        return _json(self._view(self._group(request)))

    async def _put_group(self, request: web.Request) -> web.Response:
        wish = await read_body(request, GroupDeclaration)
        cluster, name = _key(request)
        for part in (cluster, name):
            if _NAME.fullmatch(part) is None:
                message = (
                    f"{part!r} is no name: 1 to 128 letters, digits, dots, dashes, underlines."
                )
                raise ApiRefusal(400, "INVALID_REQUEST", message)
        event = DeclareGroup(
            cluster=cluster,
            name=name,
            uid=wish.uid,
            replicas=wish.replicas,
            min_in_sync_replicas=wish.min_in_sync_replicas,
            route_address=wish.route_address,
            listeners=listeners_of(wish.listeners),
            preferred=places_of(wish.preferred),
        )
        group = self._machine.group(cluster, name)
        if group is None or not _is_declared(group, event):
            if event.listeners or event.preferred:
                self.all_must_know_its_events()
            group = (await self.write(event)).group
        assert group is not None
        return _json(self._view(group))

    async def _delete_group(self, request: web.Request) -> web.Response:
        uid = request.query.get("uid", "")
        if not uid:
            message = "Say whose group to remove: DELETE …?uid=UID."
            raise ApiRefusal(400, "INVALID_REQUEST", message)
        cluster, name = _key(request)
        owners = self._watchman.may_raise()
        if owners is None:  # queues that begin anew would have two
            raise ApiRefusal(503, "NOT_READY", f"{NOT_HEARD}.")
        await self.write(RemoveGroup(cluster=cluster, name=name, uid=uid, owners=owners))
        return web.Response(status=204)

    async def _retire(self, request: web.Request) -> web.Response:
        wish = await read_body(request, RetireRequest)
        group = self._group(request)
        event = RetireGroup(cluster=group.cluster, name=group.name, uid=wish.uid)
        return await self._changed(group, event)

    async def _drain(self, request: web.Request) -> web.Response:
        wish = await read_body(request, DrainRequest)
        group = self._group(request)
        is_mine = wish.uid in (None, None if group.declaration is None else group.declaration.uid)
        if is_mine and group.key in self._machine.state.drains:
            return _json(self._view(group))
        self.all_must_know_its_events()
        if self._watchman.has_others(group) and not self._watchman.others_serve(group):
            message = (
                f"No other group of cluster {group.cluster} that takes messages has a living "
                "master: have one elected first."
            )
            raise ApiRefusal(409, "INVALID_REQUEST", message)
        at_ms = time.time_ns() // 1_000_000
        event = DrainGroup(cluster=group.cluster, name=group.name, uid=wish.uid, at_ms=at_ms)
        await self.write(event)
        return _json(self._view(self._machine.group(group.cluster, group.name) or group))

    async def _end_drain(self, request: web.Request) -> web.Response:
        group = self._group(request)
        if group.key not in self._machine.state.drains:
            return _json(self._view(group))
        return await self._changed(group, EndDrain(cluster=group.cluster, name=group.name))

    async def _forget(self, request: web.Request) -> web.Response:
        wish = await read_body(request, ForgetRequest)
        group = self._group(request)
        event = ForgetMember(
            cluster=group.cluster,
            name=group.name,
            broker_id=BrokerId(wish.broker_id),
            incarnation=wish.incarnation or "",
            live=self._watchman.to_forget(group, BrokerId(wish.broker_id)),
        )
        return await self._changed(group, event)

    async def _fence(self, request: web.Request) -> web.Response:
        wish = await read_body(request, FenceRequest)
        group = self._group(request)
        if (wish.broker_id in group.fenced) is wish.fenced:
            return _json(self._view(group))
        self.all_must_know_its_events()
        event = FenceMember(
            cluster=group.cluster,
            name=group.name,
            broker_id=BrokerId(wish.broker_id),
            fenced=wish.fenced,
            live=self._watchman.live_members(group),
        )
        return await self._changed(group, event)

    async def _changed(self, group: BrokerGroup, event: Event) -> web.Response:
        """The group as it is after ``event``."""
        result = await self.write(event)
        return _json(self._view(result.group or group))

    async def _elect(self, request: web.Request) -> web.Response:
        wish = await read_body(request, ElectRequest)
        group = self._group(request)
        event = ElectMaster(
            cluster=group.cluster,
            name=group.name,
            requester=BrokerId(wish.broker_id),
            designate=True,
            expected_epoch=Epoch(wish.master_epoch),
            live=self._watchman.live_members(group),
            first_wait_over=self._watchman.first_wait_over(group),
        )
        objection = self._watchman.before_election(group, event)
        if objection:
            raise ApiRefusal(409, "ELECT_MASTER_FAILED", objection)
        result = await self.write(event, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
        assert result.group is not None
        return _json(self._view(result.group))

    async def _accept_loss(self, request: web.Request) -> web.Response:
        wish = await read_body(request, AcceptLossRequest)
        group = self._group(request)
        self.all_must_know_its_events()
        event = AcceptLoss(
            cluster=group.cluster,
            name=group.name,
            broker_id=BrokerId(wish.broker_id),
            expected_epoch=Epoch(wish.master_epoch),
            floor_offset=Offset(wish.confirmed_offset),
            live=self._watchman.live_members(group),
            at_ms=time.time_ns() // 1_000_000,
        )
        floor = self._watchman.floor(group)
        self._watchman.let_the_quorum_know(group)
        _log.warning(
            "a person accepts a loss",
            cluster=group.cluster,
            broker_name=group.name,
            broker_id=wish.broker_id,
            confirmed=-1 if floor is None else floor.offset,
        )
        return await self._changed(group, event)

    async def _adopt(self, request: web.Request) -> web.Response:
        wish = await read_body(request, AdoptRequest)
        group = self._group(request)
        self.all_must_know_its_events()
        claims = self._watchman.claims(group)
        if group.declaration is None:
            message = f"Nobody has declared {group.name} here: create its BrokerGroup first."
            raise ApiRefusal(409, "INVALID_REQUEST", message)
        if not claims or set(wish.broker_ids) != set(claims):
            there = ", ".join(map(str, sorted(claims))) or "none"
            message = f"The copies that knock now are {there}: look again."
            raise ApiRefusal(409, "INVALID_REQUEST", message)
        expected = group.declaration.replicas
        if len(claims) < expected and not wish.accept_missing:
            message = f"Only {len(claims)} of {expected} copies are there."
            raise ApiRefusal(409, "INVALID_REQUEST", message)
        epoch = max(claim.epoch for claim in claims.values())
        event = AdoptGroup(
            cluster=group.cluster,
            name=group.name,
            epoch=epoch,
            expected_epoch=Epoch(wish.master_epoch),
        )
        _log.warning(
            "a person adopts a group of another quorum",
            cluster=group.cluster,
            broker_name=group.name,
            master_epoch=epoch,
            copies=sorted(claims),
        )
        return await self._changed(group, event)

    def all_must_know_its_events(self) -> None:
        """A controller of an older version would stop at them; raises ApiRefusal."""
        if not self._watchman.may_raise():
            message = "Not all controllers are of this version yet: finish their roll-out first."
            raise ApiRefusal(409, "INVALID_REQUEST", message)

    async def _evidence(self, request: web.Request) -> web.Response:
        evidence = await read_body(request, EvidenceRequest)
        group = self._group(request)
        self._watchman.pod_is_gone(group, evidence.pod_uid)
        return _json(self._view(group))

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = request.query.get("since", "0")
        if not (since.isascii() and since.isdigit() and len(since) <= 18):
            raise ApiRefusal(400, "INVALID_REQUEST", f"since={since!r} is no index.")
        if self._hub.full:
            self._hub.refused += 1
            raise ApiRefusal(
                429, "TOO_MANY_WATCHERS", "There are as many watchers as there may be."
            )
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        watcher = self._hub.open(int(since))
        try:
            await response.prepare(request)
            await self._stream(watcher, response)
        finally:
            self._hub.close(watcher)
        return response

    async def _stream(self, watcher: Watcher, response: web.StreamResponse) -> None:
        while True:
            groups, heartbeat = await watcher.next()
            try:
                for start in range(0, len(groups), GROUPS_PER_TURN):
                    turn = groups[start : start + GROUPS_PER_TURN]
                    await _write(response, await self._gate.bit(partial(self._lines, turn)))
                if heartbeat is not None:
                    beat = WatchEvent(index=heartbeat, heartbeat=True)
                    line = beat.model_dump_json(by_alias=True, exclude_defaults=True)
                    await _write(response, [line])
            except TimeoutError:
                self._hub.dropped += 1
                _log.warning("watcher dropped, it does not read")
                return
            except ConnectionError:
                return
            if watcher.ended:
                return

    def _lines(self, groups: list[BrokerGroup]) -> list[str]:
        return [watch_event(group, self._watchman).to_json() for group in groups]

    # What they share.

    def _view(self, group: BrokerGroup) -> GroupView:
        return group_view(group, self._watchman)

    def _group(self, request: web.Request) -> BrokerGroup:
        cluster, name = _key(request)
        group = self._machine.state.find(cluster, name)
        if group is None:
            raise ApiRefusal(404, "NOT_FOUND", f"There is no broker group {cluster}/{name}.")
        return group

    async def _catch_up(self, *, anywhere: bool) -> None:
        """Until the local state is as new as this call, which only the leader can say.

        ``anywhere``: a follower asks it, or sends the caller there.
        """
        done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._quorum.read(lambda error: _settle(done, error), anywhere=anywhere)
        error = await self._within(done)
        if error is not None:
            raise self.refusal(error)

    async def write(self, event: Event, *also_fine: ResponseCode) -> Result:
        """The result of ``event`` once it is applied; raises ApiRefusal if it is refused."""
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._quorum.propose(encode_event(event), lambda outcome: _settle(done, outcome))
        outcome = await self._within(done)
        if not isinstance(outcome, Result):
            raise self.refusal(outcome)
        if not outcome.ok and outcome.code not in also_fine:
            name = outcome.code.name.removeprefix("CONTROLLER_")
            raise ApiRefusal(409, name, outcome.remark or name)
        return outcome

    async def asked(self, begin: Callable[[Callable[[object], None]], None]) -> object:
        """The argument of the callback that ``begin`` gets, in time."""
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        begin(lambda outcome: _settle(done, outcome))
        return await self._within(done)

    def quorum(self) -> web.Response:
        """The quorum as this node sees it now."""
        return _json(self._describe())

    async def _within(self, done: asyncio.Future[ResultT]) -> ResultT:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await done
        except TimeoutError:
            self.expired += 1
            message = (
                "The quorum did not answer in time; whether the request took effect is unknown."
            )
            raise ApiRefusal(503, "NO_QUORUM", message, self._leader_http()) from None

    def refusal(self, error: object) -> ApiRefusal:
        """The answer for what went wrong with a request."""
        if isinstance(error, NotLeader):
            return ApiRefusal(
                421, "NOT_LEADER", str(error), self._leader_http(), self._peers_http()
            )
        if isinstance(error, Overloaded):
            return ApiRefusal(429, "OVERLOADED", str(error), self._leader_http())
        return ApiRefusal(503, "NO_QUORUM", str(error), self._leader_http())


def _json(view: GroupView | GroupList | QuorumView) -> web.Response:
    return web.json_response(text=view.to_json())


def _key(request: web.Request) -> tuple[str, str]:
    return request.match_info["cluster"], request.match_info["name"]


def _is_declared(group: BrokerGroup, wish: DeclareGroup) -> bool:
    known = group.declaration
    return (
        not group.retired
        and known is not None
        and (
            known.uid,
            known.replicas,
            known.min_in_sync_replicas,
            known.route_address,
            known.listeners,
            known.preferred,
        )
        == (
            wish.uid,
            wish.replicas,
            wish.min_in_sync_replicas,
            wish.route_address,
            wish.listeners,
            wish.preferred,
        )
    )


async def _write(response: web.StreamResponse, lines: list[str]) -> None:
    async with asyncio.timeout(WRITE_WITHIN_S):
        await response.write("".join(line + "\n" for line in lines).encode())
    await asyncio.sleep(0)


async def read_body(request: web.Request, model: type[ModelT]) -> ModelT:
    """The request's body as ``model``; refuses what is none."""
    data = await request.read()
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        message = f"{where}: {first['msg']}."
        raise ApiRefusal(400, "INVALID_REQUEST", message) from error


def _settle(done: asyncio.Future[ResultT], outcome: ResultT) -> None:
    if not done.done():  # whoever waited may have given up
        done.set_result(outcome)
