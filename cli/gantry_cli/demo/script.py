"""The story of the demonstration: a group loses its master, is handed over, and sees one frozen.

All the while the master uploads to a tier, and the next one goes on where it stopped.

Everything the audience is told comes from the client or the controllers; the script adds only what
it did itself. Waiting is always bounded: a group that does not come back is a figure in the account
and a sentence on stderr, not a demonstration that hangs.
"""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

from gantry_local import manifests
from gantry_protocol.errors import GantryError

from gantry_cli.admin import AdminClient
from gantry_cli.demo.report import DemoAccount, account
from gantry_cli.demo.tier import TierWatch, with_tier
from gantry_cli.trial.load import Load, LoadPace
from gantry_cli.trial.observer import Observer
from gantry_cli.trial.resume import resumed

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_protocol.tier.keys import PackKey

    from gantry_cli.client.gaps import Gap
    from gantry_cli.demo.stage import DemoStage
    from gantry_cli.trial.cluster import Cluster

GROUP = "orders"
TOPIC = "demo"
PACE = LoadPace(lanes=4, interval_s=0.01)
FIRST_ACK_PATIENCE_S = 40.0
RESUME_PATIENCE_S = 15.0
SETTLE_PATIENCE_S = 15.0
UPLOAD_PATIENCE_S = 10.0
STEADY_S = 3.0  # of undisturbed writes between two acts
DRAIN_PATIENCE_S = 10.0
FRESH_S = 1.0  # a heartbeat tells the confirm offset every 500 ms, and is read within 200


class Play:
    """One performance on one cluster."""

    def __init__(self, cluster: Cluster, stage: DemoStage, directory: Path) -> None:
        self._cluster = cluster
        self._stage = stage
        self._directory = directory

    async def perform(self, manifest: Path) -> DemoAccount:
        """Play all acts on a cluster that is up; returns the account."""
        stage, cluster = self._stage, self._cluster
        stage.phase = "a broker group comes up"
        bucket = self._directory / "tier"
        bucket.mkdir()
        await cluster.apply(self._tiered(manifest, bucket))
        stage.did(f"applied {manifest.name}, with spec.tier.url {bucket.as_uri()}")
        async with (
            AdminClient(cluster.controllers, cluster.token) as admin,
            Observer(admin, GROUP, stage.saw, cluster.pods) as observer,
            TierWatch(bucket, GROUP, stage.saw) as tier,
            Load(cluster.name_servers, TOPIC, pace=PACE) as load,
        ):
            stage.observer, stage.load, stage.tier = observer, load, tier
            ready_s = await self._first_ack(load)
            await self._settle(observer, "all replicas are in sync")
            await self._steady(load, observer)
            await self._uploaded(tier, observer)
            killed_s = await self._kill_master(observer)
            await self._resume(load, killed_s, "write gap after SIGKILL")
            await self._settle(observer, "the killed replica is back in sync")
            await self._steady(load, observer)
            await self._uploaded(tier, observer)
            stopped_s = await self._stop_master(observer)
            await self._resume(load, stopped_s, "write gap of the hand-over")
            await self._settle(observer, "the stopped replica is back in sync")
            await self._steady(load, observer)
            frozen_s = time.monotonic()
            refused = await self._freeze_master(load, tier, observer)
            await self._curtain(load)
            load_end = await self._uploaded(tier, observer)
            tiered = await tier.account(lambda: self._confirmed(observer), load_end, refused)
            self._tell_tier(len(tiered.refused), tiered.packs, tiered.findings)
            return account(
                load.ledger.verdict(),
                ready_s=ready_s,
                write_gap_ms=_ms(load.acks.longest(killed_s, stopped_s)),
                handover_gap_ms=_ms(load.acks.longest(stopped_s, frozen_s)),
                freeze_gap_ms=_ms(load.acks.longest(frozen_s)),
                illegal_offsets=load.illegal_offsets,
                masters=observer.history.masterships,
                master_changes=observer.history.changes,
                conflicts=observer.history.conflicts,
                tier=tiered,
                duration_s=stage.elapsed_s,
            )

    async def _first_ack(self, load: Load) -> float:
        """Start the load; seconds from the start of everything to its first acknowledgement.

        Raises:
            GantryError: there is none in time, so there is nothing to demonstrate.
        """
        starting = asyncio.create_task(load.start())
        deadline = time.monotonic() + FIRST_ACK_PATIENCE_S
        try:
            while not len(load.acks) and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
                load.raise_if_broken()
                if starting.done():
                    starting.result()
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        if not len(load.acks):
            raise GantryError(
                f"No write was acknowledged in {FIRST_ACK_PATIENCE_S:.0f} s: "
                f"{load.last_trouble or 'nobody answered'}"
            )
        ready_s = self._stage.elapsed_s
        self._stage.saw(f"first message acknowledged after {ready_s:.1f} s")
        return ready_s

    async def _settle(self, observer: Observer, good: str) -> None:
        if await observer.until_settled(SETTLE_PATIENCE_S):
            self._stage.saw(good)
        else:
            self._stage.saw(f"not everybody is in sync after {SETTLE_PATIENCE_S:.0f} s")

    async def _steady(self, load: Load, observer: Observer) -> None:
        """Let writes flow for a while."""
        self._stage.phase = "steady writes"
        await asyncio.sleep(STEADY_S)
        load.raise_if_broken()
        observer.raise_if_broken()

    async def _kill_master(self, observer: Observer) -> float:
        """SIGKILL the master's process; when that was."""
        self._stage.phase = "the master is killed"
        pod = await self._master(observer)
        killed_s = time.monotonic()
        if pod is not None:
            await self._cluster.signal_pod(pod, signal.SIGKILL)
            self._stage.did(f"killed {pod}, the master, with SIGKILL")
        return killed_s

    async def _stop_master(self, observer: Observer) -> float:
        """Delete the master's pod, so that it is asked to stop; when that was."""
        self._stage.phase = "the new master is stopped gracefully"
        pod = await self._master(observer)
        stopped_s = time.monotonic()
        if pod is not None:
            await self._cluster.delete_pod(pod)
            self._stage.did(f"deleted {pod}, the master: it gets SIGTERM")
        return stopped_s

    async def _freeze_master(
        self, load: Load, tier: TierWatch, observer: Observer
    ) -> list[PackKey]:
        """SIGSTOP the master over an upload, SIGCONT it under the next one; what was refused."""
        self._stage.phase = "the master is frozen in the middle of an upload"
        pod = await self._master(observer)
        if pod is None:
            return []
        epoch = tier.epoch
        send = await self._cluster.signaller(pod)
        pack = await tier.freeze(send)
        frozen_s = time.monotonic()
        under_way = "" if pack is None else f"; its pack of {_span(pack)} waits for its commit"
        self._stage.did(f"froze {pod}, the master, with SIGSTOP{under_way}")
        try:
            await self._resume(load, frozen_s, "write gap after SIGSTOP")
            await tier.until(lambda: tier.epoch > epoch, UPLOAD_PATIENCE_S)
        finally:
            send(signal.SIGCONT)
        self._stage.did(f"woke {pod} with SIGCONT: it knows of no other master")
        await self._settle(observer, "the frozen replica is back in sync")
        reason = None if pack is None else tier.refused(pack)
        if pack is None or reason is None:
            self._stage.saw(f"{pod} had no upload to be refused")
            return []
        self._stage.saw(f"{pod}'s upload of {_span(pack)} is refused: {reason}")
        return [pack]

    def _tiered(self, manifest: Path, bucket: Path) -> Path:
        """The manifest with a tier, in a file of the demonstration's own."""
        tiered = self._directory / "brokergroup.json"
        tiered.write_bytes(with_tier(manifests.read(str(manifest)), GROUP, bucket.as_uri()))
        return tiered

    async def _uploaded(self, tier: TierWatch, observer: Observer) -> int:
        """Wait until the tier holds what is confirmed now; up to where that is."""
        confirm, since_s = _confirm(observer), time.monotonic()
        if await tier.until(lambda: tier.end >= confirm, UPLOAD_PATIENCE_S):
            took_ms = (time.monotonic() - since_s) * 1000
            self._stage.saw(
                f"the tier holds the confirmed log up to {confirm}, "
                f"{took_ms:.0f} ms after that was confirmed"
            )
        else:
            self._stage.saw(f"the tier ends at {tier.end}, the group is confirmed up to {confirm}")
        return confirm

    async def _confirmed(self, observer: Observer) -> int:
        """The confirm offset, as told after now."""
        await asyncio.sleep(FRESH_S)
        return _confirm(observer)

    def _tell_tier(self, refused: int, packs: int, findings: list[str]) -> None:
        for finding in findings:
            self._stage.saw(finding)
        if not findings:
            self._stage.saw(
                f"gantry tier verify: {packs} packs, no hole, no overlap, no byte above confirm; "
                f"{refused} refused"
            )

    async def _master(self, observer: Observer) -> str | None:
        await observer.until(lambda: observer.master_pod is not None, SETTLE_PATIENCE_S)
        if observer.master_pod is None:
            self._stage.saw("there is no master to take away")
        return observer.master_pod

    async def _resume(self, load: Load, since_s: float, what: str) -> None:
        """Wait until writes have flowed again for a while, and tell the gap."""
        gap = await resumed(
            load.acks, since_s, patience_s=RESUME_PATIENCE_S, check=load.raise_if_broken
        )
        if gap is None:
            self._stage.saw(f"writes did not resume: {load.last_trouble or 'no answer'}")
        else:
            self._stage.measured(what, gap.ms)

    async def _curtain(self, load: Load) -> None:
        """Stop sending, and read everything that was acknowledged."""
        self._stage.phase = "counting"
        await load.finish_sending(DRAIN_PATIENCE_S)
        await load.finish_consuming(DRAIN_PATIENCE_S)
        verdict = load.ledger.verdict()
        self._stage.saw(
            f"{verdict.acknowledged} acknowledged, {verdict.consumed} consumed, "
            f"{verdict.lost} lost, {verdict.duplicated} twice "
            f"({verdict.duplicated_after_lost_answer} of them after a lost answer)"
        )


def _confirm(observer: Observer) -> int:
    members = () if observer.group is None else observer.group.members
    return max((member.confirm_offset for member in members), default=0)


def _span(pack: PackKey) -> str:
    return f"[{pack.lo}, {pack.hi})"


def _ms(gap: Gap | None) -> float | None:
    return None if gap is None else gap.ms
