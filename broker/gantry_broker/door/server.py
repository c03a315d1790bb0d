"""The door: a process beside a broker that owns clients' connections and leads them to the master.

It passes frames on as a replica does (``routing``), and a broker that is killed takes none of its
clients' connections along. It serves nothing itself and keeps nothing but what is unanswered.

It asks the controllers who the master is (1004, which every controller answers and which needs no
key), and changes nothing there. Out, on SIGTERM: it stops listening and ends every connection with
an answer, or idle, within ``CUT_WITHIN_S``.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from typing import Any

from aiohttp import web
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import WireError
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.headers.controller import (
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
)
from gantry_protocol.hosts import join_address
from gantry_protocol.process import log, runtime
from gantry_protocol.process.metrics import counter, gauge
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.process.tasks import keep
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.limits import fair_limits
from gantry_protocol.remoting.server import RemotingServer
from gantry_protocol.tls.listeners import ListenerTlsCollector, listener_tls, written
from gantry_protocol.tls.process import Tls, TlsCollector
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gantry_broker.clients.request_rules import CLIENT_RULES
from gantry_broker.clients.routing import ClientRouter
from gantry_broker.clients.routing_metrics import routing_metrics
from gantry_broker.control.core.course import CALM_S, LOOK_S, Course
from gantry_broker.control.peers import ControllerPeers
from gantry_broker.door.settings import DoorSettings

ANSWER_WITHIN_S = 0.1  # for the bytes of last answers when the process ends

_log = log.get("door")


class DoorServer:
    """One door's ports and what stands behind them.

    Attributes:
        asked: questions to controllers.
        answered: answers that name the group's epoch.
        listener_ports: that of each listener.
    """

    def __init__(self, settings: DoorSettings) -> None:
        """Nothing is opened before ``run``."""
        self.settings = settings
        self.port = settings.port
        self.http_port = settings.http_port
        self.course = Course()
        self._tls = Tls(settings)
        self._listener_tls = listener_tls(settings, self._tls)
        self.listener_ports = settings.listener_ports
        self.asked = 0
        self.answered = 0
        self.router = ClientRouter(
            master_address=lambda: self.course.address,
            epoch=lambda: self.course.epoch or 0,
            ask=self._doubt,
            tls=self._tls,
        )
        self.remoting = RemotingServer(
            self.router.handle,
            on_close=self.router.connection_closed,
            rules=CLIENT_RULES,
            limits=fair_limits(descriptors_each=2),
            tls=self._tls,
        )
        self.peers = ControllerPeers(settings.controllers, self._ask_now)
        self._sooner = asyncio.Event()
        self._asked_s = -CALM_S

    async def run(self, stop: asyncio.Event) -> None:
        """Pass clients on until ``stop`` is set.

        Raises:
            GantryError: an operating error, as one sentence.
        """
        async with AsyncExitStack() as stack:
            await self._open(stack)
            await stop.wait()
            await self.remoting.stop_listening()
            await self.router.cut_all()

    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        for tls in (self._tls, *self._listener_tls.values()):
            tls.load()
        self.port = await self.remoting.start(settings.bind, settings.port)
        for name, port in settings.listener_ports.items():
            at = await self.remoting.listen_also(settings.bind, port, self._listener_tls[name])
            self.listener_ports[name] = at
        stack.push_async_callback(self.remoting.stop, ANSWER_WITHIN_S)
        stack.callback(self.router.close)
        made = CollectorRegistry()
        made.register(DoorCollector(self))
        made.register(TlsCollector(self._tls))
        made.register(ListenerTlsCollector(self._listener_tls))
        http = HttpServer(ready=self.ready, registry=made)
        http.add_route("GET", "/status", self._status)
        self.http_port = await http.start(settings.bind, settings.http_port)
        stack.push_async_callback(http.stop)
        self.peers.start()
        stack.push_async_callback(self.peers.stop)
        for task in (
            keep(self._keep_asking(), "who-is-master"),
            keep(self._keep_looking(), "does-it-answer"),
        ):
            stack.callback(task.cancel)
        _log.info(
            "listening",
            port=self.port,
            http=self.http_port,
            group=settings.group,
            **written(self.listener_ports),
        )

    def ready(self) -> tuple[bool, str]:
        """Whether clients may be sent here, and why not; it stays so while there is no master."""
        course = self.course
        if not course.known:
            return False, "no controller has named a master of the group yet"
        return True, f"leads to {course.address or 'no master'} in epoch {course.epoch}"

    # ---- who the master is

    def _doubt(self) -> None:
        self.course.doubt(self._now_s())
        self._sooner.set()

    def _ask_now(self) -> None:
        """A controller has just connected."""
        self._asked_s = -CALM_S
        self._sooner.set()

    async def _keep_asking(self) -> None:
        while True:
            now_s = self._now_s()
            wait_s = self.course.next_ask_s(self._asked_s, now_s) - now_s
            if wait_s <= 0:
                self._asked_s = now_s
                self._ask()
                continue
            self._sooner.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._sooner.wait()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            said_bytes, now_s = self.remoting.stats.bytes_out, self._now_s()
            self.course.looked(said_bytes, self.router.is_owed, now_s)
            if self.course.is_in_doubt(now_s):
                self._sooner.set()

    def _ask(self) -> None:
        if self.course.is_in_doubt(self._now_s()):
            self.asked += self.peers.ask_each(self._question, self._told, CALM_S)
        else:
            self.asked += 1
            self.peers.ask(self._question(), self._told_calmly, CALM_S)

    def _question(self) -> RemotingCommand:
        header = GetReplicaInfoRequestHeader(
            broker_name=self.settings.group, cluster_name=self.settings.cluster
        )
        return request(RequestCode.CONTROLLER_GET_REPLICA_INFO, to_ext(header))

    def _told_calmly(self, outcome: Outcome) -> None:
        """The answer of one controller; if it cannot say, perhaps another can."""
        if isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SUCCESS:
            self._told(outcome)
        else:
            self.asked += self.peers.ask_each(self._question, self._told, CALM_S)

    def _told(self, outcome: Outcome) -> None:
        if not isinstance(outcome, RemotingCommand) or outcome.code != ResponseCode.SUCCESS:
            return
        with suppress(WireError):
            header = from_ext(GetReplicaInfoResponseHeader, outcome.ext)
            self.answered += 1
            if self.course.heard(header.master_epoch, header.master_address or ""):
                _log.info("master", epoch=self.course.epoch, address=self.course.address)
                self.router.role_changed()

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()

    # ---- what people see

    @property
    def address(self) -> str:
        """The address of this process for clients."""
        return join_address(self.settings.bind, self.port)

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(self.status())

    def status(self) -> dict[str, Any]:
        """The status document of ``GET /status``."""
        ready, reason = self.ready()
        return {
            "cluster": self.settings.cluster,
            "group": self.settings.group,
            "address": self.address,
            "role": "door",
            "ready": ready,
            "reason": reason,
            "masterAddress": self.course.address or None,
            "epoch": self.course.epoch or 0,
            "inDoubt": self.course.is_in_doubt(self._now_s()),
            "controllers": self.peers.connections,
            "connections": self.remoting.stats.connections,
            "spliced": self.router.spliced,
            "held": self.router.held,
        }


class DoorCollector(Collector):
    """The metrics of a door."""

    def __init__(self, door: DoorServer) -> None:
        """Nothing is counted here."""
        self._door = door

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        door, course, stats = self._door, self._door.course, self._door.remoting.stats
        yield gauge("gantry_door_ready", "1 once a master was known.", door.ready()[0])
        yield gauge("gantry_door_epoch", "Newest epoch heard of.", course.epoch or 0)
        yield gauge(
            "gantry_door_controllers", "Controllers that are connected.", door.peers.connections
        )
        yield counter("gantry_door_asked", "Questions for the master.", door.asked)
        yield counter("gantry_door_answered", "Answers that named an epoch.", door.answered)
        yield counter(
            "gantry_door_stale_answers",
            "Answers that named a former epoch: nobody is led by them.",
            course.stale,
        )
        yield gauge("gantry_door_connections", "Open client connections.", stats.connections)
        yield counter(
            "gantry_door_connections_refused",
            "Connections turned away, too many were open.",
            stats.refused,
        )
        yield from routing_metrics("gantry_door", door.router)


async def serve(settings: DoorSettings, stop: asyncio.Event) -> None:
    """Run one door until ``stop`` is set.

    Raises:
        GantryError: an operating error, as one sentence.
    """
    runtime.collect_seldom()
    await DoorServer(settings).run(stop)
