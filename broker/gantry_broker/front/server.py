"""The front: a stateless process that serves clients on every group of a cluster.

It asks the controllers which groups there are and who their masters are (GetFrontGroups, 31010),
and changes nothing there. One question waits at a controller for news; while some group's master is
in doubt, all controllers are asked at once. Each group has a port of its own (``led_group``). Out,
on SIGTERM: it stops listening and ends every connection with an answer, or idle, within
``CUT_WITHIN_S``; what is under way is answered before.
"""

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from aiohttp import web
from gantry_protocol.bodies import decode_body
from gantry_protocol.bodies.fronts import FrontGroupRow, FrontGroups
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import GantryError, WireError
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.fronts import GetFrontGroupsRequestHeader
from gantry_protocol.member_tls.names import MemberKind, MemberName
from gantry_protocol.member_tls.process import MemberTls, MemberTlsCollector
from gantry_protocol.process import log, runtime
from gantry_protocol.process.live_settings import SettingsFile, SettingsWatch
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.process.settings_word import SettingsWord
from gantry_protocol.process.tasks import keep
from gantry_protocol.quorum_key import KeyFile, demand_key
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.limits import fair_limits
from gantry_protocol.remoting.turns import Turns
from gantry_protocol.settings.front import LIVE
from gantry_protocol.tls.process import Tls, TlsCollector
from gantry_protocol.tracing.export import TracingCollector, live_export
from prometheus_client import CollectorRegistry

from gantry_broker.clients.access import ClusterUsers
from gantry_broker.clients.filter_metrics import FilterCollector
from gantry_broker.control.core.course import CALM_S, LOOK_S
from gantry_broker.control.peers import ControllerPeers
from gantry_broker.front.ageing import end_old
from gantry_broker.front.bucket.group import Buckets
from gantry_broker.front.core.directory import Directory
from gantry_broker.front.led_group import LedGroup
from gantry_broker.front.metrics import FrontCollector
from gantry_broker.front.settings import FrontSettings
from gantry_broker.tier.stores.metrics import StoreCollector

ANSWER_WITHIN_S = 0.1  # for the bytes of last answers when the process ends
WAIT_MS = 1_000  # of a question for news
GAP_S = 0.05  # between an answer and the next question
AGE_EVERY_S = 1.0  # looks whether connections are old
PORT_RETRY_S = 1.0  # before a port that somebody has is tried again

_log = log.get("front")


class FrontServer:
    """One front's ports and what stands behind them.

    Attributes:
        groups: that are served, by name.
        asked: questions to controllers.
        answered: answers that name groups, or say that nothing is new.
        aged: connections that were ended since they were old.
        buckets: the store of the groups' tiers; None without one.
        access: users of the cluster.
    """

    def __init__(
        self, settings: FrontSettings, file: SettingsFile[FrontSettings] | None = None
    ) -> None:
        """Nothing is opened before ``run``; ``file`` is where other settings may come from."""
        self.settings = settings
        self._settings_word = SettingsWord()
        self._settings_watch = SettingsWatch(settings, LIVE, file, self._tune, self._say_settings)
        self.http_port = settings.http_port
        self.groups: dict[str, LedGroup] = {}
        self.asked = 0
        self.answered = 0
        self.aged = 0
        self._next_ageing_s = 0.0
        self.directory = Directory(settings.ports)
        self._member_tls = MemberTls(settings, [MemberName(MemberKind.FRONT, settings.cluster)])
        self.key = KeyFile(settings.quorum_key_file, self._member_tls)
        self.peers = ControllerPeers(settings.controllers, self._ask_now, self.key)
        self._tls = Tls(settings)
        self.access = ClusterUsers(settings.cluster, self.peers, self.key, may_wait=False)
        self.buckets = None if settings.tier_url is None else Buckets(settings, self._tls)
        self._spans = live_export(
            settings.tracing_endpoint, "gantry-front", settings.cluster, settings.name
        )
        self._limits = fair_limits(descriptors_each=2)
        self._turns = Turns()
        self._digest = ""
        self._rows: list[FrontGroupRow] = []  # of the last answer that was no "nothing new"
        self._sooner = asyncio.Event()
        self._asked_s = -CALM_S
        self._is_waiting = False  # a question for news is under way
        self._moving: asyncio.Task[None] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Serve clients until ``stop`` is set.

        Raises:
            GantryError: an operating error, as one sentence.
        """
        async with AsyncExitStack() as stack:
            await self._open(stack)
            await stop.wait()
            await asyncio.gather(*(group.leave() for group in self.groups.values()))

    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        self._tls.load()
        self._member_tls.load()
        stack.push_async_callback(self._close_groups)
        made = CollectorRegistry()
        made.register(FrontCollector(self))
        made.register(FilterCollector())
        made.register(TlsCollector(self._tls))
        made.register(MemberTlsCollector(self._member_tls))
        made.register(TracingCollector(self._spans))
        self._spans.start()
        stack.push_async_callback(self._spans.stop)
        if self.buckets is not None:
            made.register(StoreCollector(lambda: self.buckets.calls if self.buckets else {}))
        http = HttpServer(ready=self.ready, registry=made)
        http.add_route("GET", "/status", self._status)
        self.http_port = await http.start(settings.bind, settings.http_port)
        stack.push_async_callback(http.stop)
        self.peers.start()
        self.access.start()
        stack.callback(self.access.stop)
        stack.push_async_callback(self.peers.stop)
        for task in (
            keep(self._keep_asking(), "which-groups"),
            keep(self._keep_looking(), "do-masters-answer"),
        ):
            stack.callback(task.cancel)
        self._settings_watch.start()
        stack.push_async_callback(self._settings_watch.stop)
        _log.info("listening", http=self.http_port, cluster=settings.cluster)

    async def _close_groups(self) -> None:
        if self._moving is not None:
            self._moving.cancel()
            await asyncio.gather(self._moving, return_exceptions=True)
        await asyncio.gather(*(group.stop(ANSWER_WITHIN_S) for group in self.groups.values()))
        if self.buckets is not None:
            await self.buckets.close()

    def ready(self) -> tuple[bool, str]:
        """Whether clients may be sent here, and why not; it stays so while a master is missing."""
        if not self.answered:
            return False, "no controller has named the groups of the cluster yet"
        unknown = sorted(name for name, group in self.groups.items() if not group.is_known)
        if self.groups and len(unknown) == len(self.groups):
            return False, "no group of the cluster has a master yet"
        return True, f"serves {len(self.groups)} groups" + (
            f"; without a master yet: {', '.join(unknown)}" if unknown else ""
        )

    # ---- settings that change while it runs

    def _tune(self, settings: FrontSettings) -> None:
        """Put settings in force that have changed; all that is ``LIVE`` is told here."""
        self.settings = settings  # among them the age of connections, which is read each time
        log.set_level(settings.log_level)
        self._spans.point_to(settings.tracing_endpoint)
        for group in self.groups.values():
            group.trace(settings.tracing_ratio)

    def _say_settings(self, word: SettingsWord) -> None:
        self._settings_word = word

    # ---- which groups, and who their masters are

    def _doubt(self, group: LedGroup) -> None:
        group.course.doubt(self._now_s())
        self._sooner.set()

    def _ask_now(self) -> None:
        """A controller has just connected."""
        self._asked_s = -CALM_S
        self._sooner.set()

    def _next_ask_s(self, now_s: float) -> float:
        doubted = [
            group.course.next_ask_s(self._asked_s, now_s)
            for group in self.groups.values()
            if group.course.is_in_doubt(now_s)
        ]
        if doubted:
            return min(doubted)
        return self._asked_s + (CALM_S + WAIT_MS / 1000 if self._is_waiting else GAP_S)

    async def _keep_asking(self) -> None:
        while True:
            now_s = self._now_s()
            wait_s = self._next_ask_s(now_s) - now_s
            if wait_s <= 0:
                self._asked_s = now_s
                self._ask(now_s)
                continue
            self._sooner.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._sooner.wait()

    def _ask(self, now_s: float) -> None:
        if any(group.course.is_in_doubt(now_s) for group in self.groups.values()):
            self.asked += self.peers.ask_each(lambda: self._question("", 0), self._told, CALM_S)
        else:
            self.asked += 1
            self._is_waiting = True
            known = self._digest
            told = partial(self._news, known)
            self.peers.ask(self._question(known, WAIT_MS), told, CALM_S, WAIT_MS / 1000)

    def _question(self, digest: str, wait_ms: int) -> RemotingCommand:
        header = GetFrontGroupsRequestHeader(self.settings.cluster, digest, wait_ms)
        return request(RequestCode.GANTRY_GET_FRONT_GROUPS, to_ext(header))

    def _news(self, known: str, outcome: Outcome) -> None:
        """The answer of one controller; if it cannot say, perhaps another can."""
        self._is_waiting = False
        self._sooner.set()
        if isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SUCCESS:
            self._told(outcome, known)
        else:
            self.asked += self.peers.ask_each(lambda: self._question("", 0), self._told, CALM_S)

    def _told(self, outcome: Outcome, known: str = "") -> None:
        if not isinstance(outcome, RemotingCommand) or outcome.code != ResponseCode.SUCCESS:
            return
        try:
            body = decode_body(FrontGroups, outcome.body)
        except WireError as error:
            _log.warning("the groups of the cluster cannot be read", reason=error)
            return
        self.answered += 1
        if known and body.digest == known and not body.groups:
            if known == self._digest:  # else all groups are wanted anew by now
                self._place(self._rows)  # still so: what they leave out is gone after a while
            return
        self._digest, self._rows = body.digest, body.groups
        self._heard(body.groups)

    def _place(self, rows: list[FrontGroupRow]) -> None:
        self.directory.heard(rows, self._now_s())
        served = {name: self._index(group) for name, group in self.groups.items()}
        if self.directory.places != served:
            self._move()

    def _heard(self, rows: list[FrontGroupRow]) -> None:
        self._place(rows)
        for row in rows:
            group = self.groups.get(row.name)
            if group is not None and group.heard(row):
                _log.info("master", group=row.name, epoch=row.epoch, address=row.master_address)

    def _index(self, group: LedGroup) -> int:
        return group.port - self.settings.first_port

    def _move(self) -> None:
        """Open and close ports, as the directory has them; another call goes on afterwards."""
        if self._moving is None or self._moving.done():
            self._moving = asyncio.create_task(self._open_and_close())

    async def _open_and_close(self) -> None:
        for name, group in list(self.groups.items()):
            if self.directory.places.get(name) != self._index(group):
                del self.groups[name]
                _log.info("group is served no more", group=name)
                await group.leave()
                await group.stop(ANSWER_WITHIN_S)
        wanted = [place for place in self.directory.places.items() if place[0] not in self.groups]
        if not all([await self._serve(*place) for place in wanted]):
            await asyncio.sleep(PORT_RETRY_S)
        self._digest = ""  # the masters of those that are new are asked for at once
        self._sooner.set()

    async def _serve(self, name: str, index: int) -> bool:
        """Open a group's port; whether that was possible."""
        group = LedGroup(
            name,
            self.settings,
            self.key,
            self.peers,
            self._turns,
            self._limits,
            self._doubt,
            self.buckets,
            self._tls,
            self.access,
            self._spans,
        )
        try:
            await group.start(index)
        except GantryError as error:
            _log.error("a group cannot be served", group=name, reason=error)
            await group.stop(0)
            return False
        group.trace(self.settings.tracing_ratio)  # other settings may have come meanwhile
        self.groups[name] = group
        _log.info("group is served", group=name, port=group.port)
        return True

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = self._now_s()
            for group in list(self.groups.values()):
                said_bytes = group.remoting.stats.bytes_out
                group.course.looked(said_bytes, group.router.is_owed, now_s)
                if group.course.is_in_doubt(now_s):
                    self._sooner.set()
            if now_s >= self._next_ageing_s:
                self._next_ageing_s = now_s + AGE_EVERY_S
                self._end_old(now_s)

    def _end_old(self, now_s: float) -> None:
        """Has clients of old connections connect again, some at other fronts."""
        age_s = self.settings.connection_age_s
        for group in list(self.groups.values()) if age_s else ():
            self.aged += end_old(group.router.pipes, now_s, age_s)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()

    # ---- what people see

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(self.status())

    def status(self) -> dict[str, Any]:
        """The status document of ``GET /status``."""
        ready, reason = self.ready()
        return {
            "cluster": self.settings.cluster,
            "role": "front",
            "ready": ready,
            "reason": reason,
            "controllers": self.peers.connections,
            "beyondPorts": self.directory.beyond,
            "settings": self._settings_word.applied,
            "settingsRefused": self._settings_word.refused,
            "groups": [group.status() for _, group in sorted(self.groups.items())],
        }


async def serve(
    settings: FrontSettings,
    stop: asyncio.Event,
    file: SettingsFile[FrontSettings] | None = None,
) -> None:
    """Run one front until ``stop`` is set; ``file`` is where other settings may come from.

    Raises:
        GantryError: an operating error, as one sentence.
    """
    demand_key(
        settings.quorum_key_file,
        allow_unauthenticated=settings.allow_unauthenticated,
        process="front",
    )
    runtime.collect_seldom()
    await FrontServer(settings, file).run(stop)
