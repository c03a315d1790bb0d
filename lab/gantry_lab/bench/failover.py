"""The gap in which a client cannot write, by kind of failure, and what was lost meanwhile.

Every run hurts a settled group under load and measures the longest time between two successive
acknowledgements from the failure on. Between runs the cluster heals by itself: a killed process is
started again by its kubelet and catches up. The account covers all runs of a case; a gap whose
account is not clean is no figure.
"""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from gantry_cli.admin import AdminClient
from gantry_cli.client.session import session
from gantry_cli.trial.load import Load, LoadPace
from gantry_cli.trial.local import scratch_cluster
from gantry_cli.trial.narrate import settled, whole
from gantry_cli.trial.observer import Observer
from gantry_cli.trial.resume import QUIET_S, resumed
from gantry_local import manifests
from gantry_protocol.errors import GantryError

from gantry_lab.soak.commits import Commits

if TYPE_CHECKING:
    from gantry_cli.client.gaps import AckTimes
    from gantry_cli.client.session import Session
    from gantry_cli.trial.cluster import Cluster

    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

GROUP = "orders"
PACE = LoadPace(lanes=4, interval_s=0.01)
READY_PATIENCE_S = 60.0
HEAL_PATIENCE_S = 60.0
RESUME_PATIENCE_S = 30.0


async def gaps(stage: BenchStage, failure: str) -> Runs:
    """The gap of each failure of one kind, in ms, and the account of all of them.

    Args:
        stage: how many.
        failure: sigkill, sigstop or handover of the master; controller-leader: its SIGKILL.

    Raises:
        GantryError: the group did not become ready or did not heal; a message was lost, is where it
            was not acknowledged, or came twice without a lost answer; an epoch had two masters.
    """
    stage.own()
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(scratch_cluster(lambda _: None))
        await cluster.apply(manifests.example())
        admin = await stack.enter_async_context(AdminClient(cluster.controllers, cluster.token))
        observer = await stack.enter_async_context(
            Observer(admin, GROUP, lambda _: None, cluster.pods)
        )
        load = await stack.enter_async_context(
            Load(cluster.name_servers, f"bench-{failure}", pace=PACE)
        )
        await _start(load)
        client = await stack.enter_async_context(session(cluster.name_servers))
        trial = _Trial(cluster, observer, load, client)

        async def once() -> dict[str, float]:
            return {"gap_ms": await trial.one(failure)}

        found = await stage.repeat(once)
        await load.finish_sending(HEAL_PATIENCE_S)
        await load.finish_consuming(HEAL_PATIENCE_S)
        verdict, conflicts = load.ledger.verdict(), observer.history.conflicts
        if not verdict.clean or conflicts:
            cluster.keep = True
            raise GantryError(
                f"The account is not clean: {verdict}, epochs with two masters: {conflicts}."
            )
    account = {
        "acknowledged": float(verdict.acknowledged),
        "lost": float(verdict.lost),
        "duplicated": float(verdict.duplicated),
    }
    return [gap | account for gap in found]


class _Trial:
    """One failure after the other on one group under load."""

    def __init__(self, cluster: Cluster, observer: Observer, load: Load, client: Session) -> None:
        self._cluster = cluster
        self._observer = observer
        self._load = load
        self._client = client

    async def one(self, case: str) -> float:
        """Settle, hurt, measure, heal; the gap in ms."""
        await self._settle()
        if case == "controller-leader":
            return await self._kill_controller_leader()
        pod = self._observer.master_pod
        if pod is None:
            raise GantryError("The pod of the master is unknown, so it cannot be hurt.")
        hurt_s = time.monotonic()
        match case:
            case "sigkill":
                await self._cluster.signal_pod(pod, signal.SIGKILL)
            case "sigstop":
                await self._cluster.signal_pod(pod, signal.SIGSTOP)
            case _:
                await self._cluster.delete_pod(pod)
        try:
            return await self._gap(self._load.acks, hurt_s)
        finally:
            if case == "sigstop":
                await self._cluster.signal_pod(pod, signal.SIGCONT)

    async def _settle(self) -> None:
        """Wait until everybody is in sync and connected, and writes have flowed for a while.

        A controller that was killed in the last run is kept waiting by its kubelet, longer each
        time; to kill the next one before it is back would measure a quorum that is not there.
        """
        deadline = time.monotonic() + HEAL_PATIENCE_S
        while time.monotonic() < deadline:
            await self._observer.until_settled(HEAL_PATIENCE_S)
            await asyncio.sleep(QUIET_S)
            self._load.raise_if_broken()
            self._observer.raise_if_broken()
            flowing = self._load.acks.flowing(time.monotonic(), QUIET_S)
            connected = whole(self._observer.quorum)
            if flowing and connected and settled(self._observer.group):
                return
        raise GantryError(
            f"The group {GROUP} or the controllers did not heal in {HEAL_PATIENCE_S:.0f} s: "
            f"{self._load.last_trouble or 'some replica or controller is missing'}"
        )

    async def _gap(self, acks: AckTimes, since_s: float) -> float:
        """Wait until `acks` flow again; the longest gap since then, in ms."""
        gap = await resumed(
            acks, since_s, patience_s=RESUME_PATIENCE_S, check=self._load.raise_if_broken
        )
        if gap is None:
            raise GantryError(
                f"Writes did not resume in {RESUME_PATIENCE_S:.0f} s: {self._load.last_trouble}"
            )
        return gap.ms

    async def _kill_controller_leader(self) -> float:
        """Commit metadata all the time, kill the leader, and measure the commits' gap."""
        async with Commits(self._client, "bench-commits") as commits:
            await asyncio.sleep(QUIET_S)
            quorum = self._observer.quorum
            leader = quorum.leader_name if quorum is not None else None
            if leader is None:
                raise GantryError("No controller says who leads, so the leader cannot be killed.")
            killed_s = time.monotonic()
            await self._cluster.signal_pod(leader, signal.SIGKILL)
            return await self._gap(commits.times, killed_s)


async def _start(load: Load) -> None:
    try:
        async with asyncio.timeout(READY_PATIENCE_S):
            await load.start()
    except TimeoutError as error:
        raise GantryError(
            f"The group {GROUP} takes no topic after {READY_PATIENCE_S:.0f} s: {load.last_trouble}"
        ) from error
