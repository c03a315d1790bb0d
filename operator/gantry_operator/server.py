"""The operator process: credentials, Lease, watches, full lists, workers; in this order.

Nothing acts before every kind is known in full, and nothing is listed before its watch has begun:
a deletion between the two would be heard of by neither. Without the Lease an operator does what
clients wait for and nothing else (`Action.for_standby`). The end is in the reverse order: what
waits for this process is done (`farewell`), the workers stop, then the Lease is given up, so that
two operators never carry out whole plans at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_protocol.admin_client.session import open_session
from gantry_protocol.process import log
from gantry_protocol.process.probes import HttpServer
from prometheus_client import CollectorRegistry

from gantry_operator import farewell
from gantry_operator.api.credentials import Credentials
from gantry_operator.api.errors import ApiError
from gantry_operator.api.kube import KubeApi
from gantry_operator.cache import Cache, Key
from gantry_operator.decisions.serving import Decisions
from gantry_operator.definitions import wait_for_definitions
from gantry_operator.health import Health
from gantry_operator.heard import Listener
from gantry_operator.lease import LeaderElection
from gantry_operator.metrics import Metrics
from gantry_operator.quorums.directory import Directory
from gantry_operator.reconcile.apply import Applier
from gantry_operator.reconcile.certificates import Certificates
from gantry_operator.reconcile.claims import Claims
from gantry_operator.reconcile.entities import Entities, is_patient
from gantry_operator.reconcile.fleet import Fleet
from gantry_operator.reconcile.moves import Moves
from gantry_operator.reconcile.observe import Observer
from gantry_operator.reconcile.quorum_secrets import Secrets
from gantry_operator.reconcile.rolls import Rolls
from gantry_operator.reconcile.tables import Tables
from gantry_operator.reconcile.worker import Reconciler
from gantry_operator.reconcile.zones import Zones
from gantry_operator.resync import Resync
from gantry_operator.shell import run_watches
from gantry_operator.workqueue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from gantry_operator.settings import OperatorSettings

START_RETRY_S = 2.0
WARM_UP_S = 10.0  # operators that start together leave the processors to those who work
POD_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_log = log.get("server")


async def serve(settings: OperatorSettings, stop: asyncio.Event) -> None:
    """Runs the operator until `stop` is set.

    Raises:
        GantryError: no credentials, no port, the Lease lost, watches that ended, or definitions
            that became older; the process is to be started again.
    """
    credentials = Credentials(settings.kubeconfig)
    await credentials.load()
    metrics = Metrics(CollectorRegistry())
    health = Health(metrics, settings.resync_interval_s)
    async with AsyncExitStack() as stack:
        http = HttpServer(live=health.live, ready=health.ready, registry=metrics.registry)
        decisions = Decisions(metrics)
        port = await decisions.serve(http, settings.bind, settings.http_port, stack)
        api = KubeApi(credentials)
        stack.push_async_callback(api.close)
        _log.info(
            "operator started",
            namespaces=",".join(settings.namespaces) or "all",
            http=f"{settings.bind}:{port}",
        )
        # Not Ready until then: an upgrade that forgot the definitions keeps the operator before it.
        known = _patiently("looking for the definitions", lambda: wait_for_definitions(api))
        if not await _unless_stopped(known, stop):
            return
        wanted = settings.leader_election
        leading = asyncio.Event()
        if wanted if wanted is not None else credentials.in_cluster:
            home = _lease_namespace(settings)
            election = LeaderElection(api, home, _identity(settings))
            await _elected(
                settings,
                credentials,
                api,
                health,
                metrics,
                decisions,
                election,
                home,
                leading,
                stop,
            )
        else:
            leading.set()
            await _act(settings, credentials, api, health, metrics, decisions, None, leading, stop)
    _log.info("operator stopped")


async def _elected(
    settings: OperatorSettings,
    credentials: Credentials,
    api: KubeApi,
    health: Health,
    metrics: Metrics,
    decisions: Decisions,
    election: LeaderElection,
    home: str,
    leading: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    """Acts: on whole plans while the Lease is held, before that as a standby."""
    health.stage = "standby"
    try:
        async with asyncio.TaskGroup() as group:
            holding = group.create_task(_hold(election, health, leading))
            if await _unless_stopped(_warmed_up(leading), stop):
                await _act(
                    settings, credentials, api, health, metrics, decisions, home, leading, stop
                )
            holding.cancel()
    finally:
        await election.release()


async def _hold(election: LeaderElection, health: Health, leading: asyncio.Event) -> None:
    """Takes the Lease and renews it; never returns."""
    await election.acquire()
    health.election = election
    leading.set()
    await election.hold()


async def _warmed_up(leading: asyncio.Event) -> None:
    """Until it leads, or has waited for a while."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WARM_UP_S):
            await leading.wait()


async def _act(
    settings: OperatorSettings,
    credentials: Credentials,
    api: KubeApi,
    health: Health,
    metrics: Metrics,
    decisions: Decisions,
    home: str | None,
    leading: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    """Watches, lists and works until `stop` is set and nothing waits for this process.

    `home` is the namespace of the Lease, without which nobody leads; None where none is needed.
    """
    cache, queue = Cache(), WorkQueue[Key](is_patient)
    listener = Listener(cache, queue)
    resync = Resync(api, cache, settings.namespaces, queue.add, metrics)
    async with open_session() as session, asyncio.TaskGroup() as group:
        tasks: set[asyncio.Task[None]] = set()

        def spawn(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            task = group.create_task(work)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            return task

        directory = Directory(
            cache, api, session, listener.roles_changed, listener.evidence_changed
        )
        quorum_secrets = Secrets(api)
        observer = Observer(
            cache,
            directory,
            quorum_secrets,
            Claims(api),
            Fleet(cache, settings.image, settings.image_rolls, metrics),
            rolls=Rolls(cache, settings.max_concurrent_rolls),
            moves=Moves(cache),
            zones=Zones(api) if settings.read_nodes else None,
            certificates=Certificates(api),
            directory_tiers=settings.directory_tiers,
            operator_namespace=_own_namespace() if credentials.in_cluster else "",
        )
        applier = Applier(api, cache, directory, quorum_secrets)
        tables = Tables(directory, metrics)
        resync.named = directory.known_groups
        reconciler = Reconciler(
            queue,
            observer,
            applier,
            directory,
            metrics,
            spawn,
            leads=leading.is_set,
            entities=Entities(api, cache, directory, tables, metrics, decisions.entities),
            recorder=decisions.groups,
        )
        spawn(run_watches(credentials, settings.namespaces, listener.hear, resync.listed))
        workers: list[asyncio.Task[None]] = []
        home_ends = False
        try:
            if await _unless_stopped(_patiently("reading the cluster", resync.fill), stop):
                spawn(quorum_secrets.watch(cache, queue.add))
                spawn(tables.watch(cache, queue.add, leading.is_set))
                spawn(resync.close_gaps())
                spawn(resync.run(settings.resync_interval_s))
                workers = [spawn(reconciler.work()) for _ in range(settings.workers)]
                health.queue, health.resync, health.cache = queue, resync, cache
                health.directory = directory
                spawn(_take_over(leading, health, resync))
            await stop.wait()
            if home is not None and leading.is_set():
                served = not settings.namespaces or home in settings.namespaces
                home_ends = served and await farewell.is_ending(api, home)
                if workers and not home_ends:
                    await farewell.finish(cache)
        finally:
            queue.close()
            health.stage = "stopping"
        for task in list(tasks):
            task.cancel()
        if home is not None and home_ends:
            await asyncio.gather(*workers, return_exceptions=True)  # none puts a finalizer back
            await farewell.let_go(api, home)


async def _take_over(leading: asyncio.Event, health: Health, resync: Resync) -> None:
    """From the moment it leads, everything is looked at with other eyes."""
    await leading.wait()
    health.stage = "acting"
    resync.look_at_all()


async def _patiently(what: str, attempt: Callable[[], Awaitable[None]]) -> None:
    """Tries until the API server answers; a rolling API server is no reason to crash."""
    while True:
        try:
            return await attempt()
        except ApiError as error:
            _log.warning(f"{what} failed", error=error, retry_s=START_RETRY_S)
            await asyncio.sleep(START_RETRY_S)


async def _unless_stopped(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Does something at the start; False if `stop` was set before it was done."""
    task = asyncio.create_task(work)
    waiter = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((task, waiter), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return task.done()
    finally:
        for item in (task, waiter):
            item.cancel()
        await asyncio.gather(task, waiter, return_exceptions=True)


def _identity(settings: OperatorSettings) -> str:
    """Unlike that of any other process, even of the same pod's earlier one."""
    return f"{settings.name or socket.gethostname()}_{secrets.token_hex(4)}"


def _lease_namespace(settings: OperatorSettings) -> str:
    if settings.lease_namespace:
        return settings.lease_namespace
    return _own_namespace() or (settings.namespaces[0] if settings.namespaces else "default")


def _own_namespace() -> str:
    """Of the pod that this process is; empty outside a cluster."""
    try:
        return POD_NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
