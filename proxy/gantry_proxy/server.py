"""The proxy: a stateless process that serves clients of gRPC on every group of a cluster.

Out, on SIGTERM: it is not ready, takes no new call, and gives those under way ``LEAVE_S``; requests
that wait for messages end with nothing.
"""

from __future__ import annotations

import platform
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web
from gantry_protocol.codes import RequestCode
from gantry_protocol.process import log, runtime
from gantry_protocol.process.files import read_secret
from gantry_protocol.process.live_settings import SettingsWatch
from gantry_protocol.process.metrics import counter, gauge
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.process.settings_word import SettingsWord
from gantry_protocol.process.tasks import keep
from gantry_protocol.quorum_key import KeyFile
from gantry_protocol.remoting.access_metrics import access_metrics
from gantry_protocol.remoting.admission import signed
from gantry_protocol.remoting.known_users import KnownUsers
from gantry_protocol.tls.process import Tls, TlsCollector
from gantry_protocol.tracing.export import TracingCollector, live_export
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from gantry_proxy.access import CallGate
from gantry_proxy.admin import AdminService
from gantry_proxy.calls import Masters
from gantry_proxy.checking import Checking
from gantry_proxy.clients import Clients
from gantry_proxy.consuming import Consuming
from gantry_proxy.controllers import Controllers
from gantry_proxy.grpc_library import GrpcServer
from gantry_proxy.lites import Lites
from gantry_proxy.pulling import Pulling
from gantry_proxy.renewing import Renewals
from gantry_proxy.service import Routing, methods
from gantry_proxy.settings import LIVE
from gantry_proxy.traced_sends import TracedProducing

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from gantry_protocol.command import RemotingCommand
    from gantry_protocol.process.live_settings import SettingsFile
    from gantry_protocol.remoting.client import Sign
    from prometheus_client.core import Metric

    from gantry_proxy.settings import ProxySettings

LEAVE_S = 1.5

_log = log.get("proxy")


class ProxyServer:
    """One proxy's ports and what stands behind them.

    Attributes:
        grpc_port, http_port: where it listens, once it does.
    """

    def __init__(
        self, settings: ProxySettings, file: SettingsFile[ProxySettings] | None = None
    ) -> None:
        """Nothing is opened before ``run``; ``file`` is where other settings may come from."""
        self.settings = settings
        self._settings_word = SettingsWord()
        self._settings_watch = SettingsWatch(settings, LIVE, file, self._tune, self._say_settings)
        self.grpc_port, self.http_port = settings.grpc_port, settings.http_port
        self.tls = Tls(settings)
        self.users: KnownUsers | None = None
        self._controllers: Controllers | None = None
        if settings.quorum_key_file is not None:
            key = KeyFile(settings.quorum_key_file)
            self._controllers = Controllers(settings.controllers, key)
            logs_all = settings.access_log == "all"
            self.users = KnownUsers(settings.cluster, self._controllers, key, logs_all=logs_all)
        self.gate = CallGate(self.users)
        self.masters = Masters(settings.nameserver, _signs(settings, self.users), self.tls)
        self.clients = Clients(self.masters, self.gate)
        self.lites = Lites(self.masters, self.clients)
        self.checking = Checking(self.masters, self.clients, self.lites)
        self.renewals = Renewals(self.masters, self.clients.is_there)
        self._spans = live_export(
            settings.tracing_endpoint, "gantry-proxy", settings.cluster, platform.node()
        )
        self.producing = TracedProducing(self.masters, self._spans, settings.tracing_ratio)
        self.consuming = Consuming(self.masters, self.renewals)
        self.pulling = Pulling(self.masters)
        self._is_leaving = False

    async def run(self, stop: asyncio.Event) -> None:
        """Serve clients until ``stop`` is set.

        Raises:
            GantryError: an operating error, as one sentence.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.masters.close)
            self.tls.load()
            registry = CollectorRegistry()
            registry.register(ProxyCollector(self))
            registry.register(TlsCollector(self.tls))
            registry.register(TracingCollector(self._spans))
            self._spans.start()
            stack.push_async_callback(self._spans.stop)
            http = HttpServer(ready=self.ready, registry=registry)
            http.add_route("GET", "/status", self._status)
            self.http_port = await http.start(self.settings.bind, self.settings.http_port)
            stack.push_async_callback(http.stop)
            if self.users is not None and self._controllers is not None:
                self.users.key.keys()  # a key that cannot be read ends the start, not each call
                self.users.listen_for_news(self.clients.users_changed)
                stack.push_async_callback(self._controllers.close)
                self.users.start()
                stack.callback(self.users.stop)
            stack.callback(keep(self.clients.run(), "streams").cancel)
            stack.callback(keep(self.renewals.run(), "renewals").cancel)
            stack.callback(keep(self.checking.run(), "whose-producer").cancel)
            routing = Routing(self.masters)
            served = methods(
                self.gate,
                routing,
                self.producing,
                self.consuming,
                self.pulling,
                self.clients,
                self.lites,
            )
            services = (served, AdminService(self.gate).methods())
            grpc = GrpcServer(services, self.settings.calls, self.tls)
            self.grpc_port = await grpc.start(self.settings.bind, self.settings.grpc_port)
            stack.push_async_callback(grpc.stop, LEAVE_S)
            self._settings_watch.start()
            stack.push_async_callback(self._settings_watch.stop)
            _log.info("listening", grpc=self.grpc_port, http=self.http_port)
            await stop.wait()
            self._is_leaving = True

    def _tune(self, settings: ProxySettings) -> None:
        """Put settings in force that have changed; all that is ``LIVE`` is told here."""
        if settings.log_level != self.settings.log_level:  # else a user's level stays
            log.set_level(settings.log_level)
        self.settings = settings
        if self.users is not None:
            self.users.logs_all = settings.access_log == "all"
        self._spans.point_to(settings.tracing_endpoint)
        self.producing.ratio = settings.tracing_ratio

    def _say_settings(self, word: SettingsWord) -> None:
        self._settings_word = word

    def ready(self) -> tuple[bool, str]:
        """Whether clients may be sent here."""
        if self._is_leaving:
            return False, "leaving"
        if not self.gate.is_ready:
            return False, "no controller has told the users of the cluster yet"
        return True, "serving"

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(self.status())

    def status(self) -> dict[str, Any]:
        """The status document of ``GET /status``."""
        ready, reason = self.ready()
        return {
            "role": "proxy",
            "ready": ready,
            "reason": reason,
            "nameServers": self.settings.nameserver,
            "clients": len(self.clients.streams),
            "renewed": len(self.renewals),
            "access": self._access(),
            "logLevel": log.level(),
            "settings": self._settings_word.applied,
            "settingsRefused": self._settings_word.refused,
        }

    def _access(self) -> str:
        """What becomes of clients' signatures."""
        if self.users is None:
            return "not judged here"
        if not self.users.is_known:
            return "unknown"
        return "on" if self.users.enabled else "off"


class ProxyCollector(Collector):
    """The metrics of a proxy."""

    def __init__(self, server: ProxyServer) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """As of now."""
        server = self._server
        name = "gantry_proxy"
        yield gauge(f"{name}_clients", "Clients with a stream here.", len(server.clients.streams))
        yield gauge(f"{name}_renewals", "Messages whose time is prolonged.", len(server.renewals))
        for metric, text, value in (
            ("sent", "Messages that were stored.", server.producing.sent),
            ("received", "Messages that were handed out.", server.consuming.received),
            ("pulled", "Messages that were pulled.", server.pulling.pulled),
            ("acknowledged", "Messages that were done.", server.consuming.acknowledged),
            (
                "returned",
                "Messages given back, since their client was gone.",
                server.consuming.returned,
            ),
            ("renewed", "Prolongations of a message's time.", server.renewals.renewed),
            (
                "not_renewed",
                "Messages too many to be prolonged.",
                server.renewals.left_out,
            ),
            (
                "checks",
                "Undecided transactions that a client was asked about.",
                server.checking.asked,
            ),
            (
                "unanswered_checks",
                "Undecided transactions for which no client was there.",
                server.checking.unanswered,
            ),
            (
                "lite_syncs",
                "Changes of clients' lite topics that brokers took.",
                server.lites.synced,
            ),
            (
                "lite_losses",
                "Lite topics of which a client was told that it has lost them.",
                server.lites.told,
            ),
            (
                "tried_again",
                "Requests to masters that were sent again.",
                server.masters.tried_again,
            ),
            (
                "refused_streams",
                "Streams of clients that were too many.",
                server.clients.refused_streams,
            ),
            (
                "ended_streams",
                "Streams of clients whose user may no longer have them.",
                server.clients.ended_streams,
            ),
        ):
            yield counter(f"{name}_{metric}", text, value)
        if server.users is not None:
            yield from access_metrics(name, server.users)


def _signs(settings: ProxySettings, users: KnownUsers | None) -> Sign | None:
    """The signature of the quorum's key, or of the user that the proxy is, if it is one.

    Raises:
        ConfigError: the file holds no secret.
    """
    if users is not None:
        return partial(_as_ours, users)
    user, file = settings.access_key, settings.secret_key_file
    if user is None or file is None:
        return None
    secret = read_secret(file).encode()
    return lambda command: signed(command, user, secret)


def _as_ours(users: KnownUsers, command: RemotingCommand) -> RemotingCommand:
    """Signed for brokers; name servers ask for no user, and are not always controllers."""
    is_for_name_servers = command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
    return command if is_for_name_servers else users.sign(command)


async def serve(
    settings: ProxySettings,
    stop: asyncio.Event,
    file: SettingsFile[ProxySettings] | None = None,
) -> None:
    """Run one proxy until ``stop`` is set; ``file`` is where other settings may come from.

    Raises:
        GantryError: an operating error, as one sentence.
    """
    runtime.collect_seldom()
    await ProxyServer(settings, file).run(stop)
