"""What uploading costs: how fast the log reaches a directory, and what producers notice of it.

One broker group of three processes on this machine, whose log is filled once. Every run starts it
without a tier and times producers; starts it with a tier that is empty, so that the whole log is
uploaded at full speed while the same producers are timed; goes on with the tier at rest; and kills
the master. Both sides of a ratio are of one run, and both begin right after a start, when brokers
also check their logs. Times of commits are those of the manifest's files, so nothing polls while
clients are timed.

What it refuses: figures of a run in which a message was not acknowledged, or nothing was uploaded.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple

from gantry_cli.admin import AdminClient
from gantry_cli.client.session import session
from gantry_protocol.errors import GantryError
from gantry_protocol.tier.keys import shard
from gantry_protocol.tier.manifests import Append, Claim, Version, decode_version

from gantry_lab.bench.broker.filling import fill
from gantry_lab.bench.members import CLUSTER, GROUP, Members
from gantry_lab.bench.results import line
from gantry_lab.bench.senders import Senders, make_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gantry_cli.client.session import Session

    from gantry_lab.bench.results import Line

BENCH = "tier"
TOPIC = "bench-tier"
PACK_BYTES = 64 * 1024 * 1024  # the default
UPLOAD_PATIENCE_S = 120.0
CLAIM_PATIENCE_S = 30.0
LOOK_S = 0.5  # between two looks at the directory while clients are timed


class Run(NamedTuple):
    """One run's figures.

    Attributes:
        upload_mb_s: log bytes per second, from the claim to the commit of the last whole pack.
        pack_ms: from one commit to the next, for packs of the full size.
        off_p99_ms: producers without a tier.
        uploading_p99_ms: while the log was uploaded at full speed.
        resting_p99_ms: with a tier that is up to date.
        claim_ms: from the promotion after a SIGKILL to the new master's first manifest version.
    """

    upload_mb_s: float
    pack_ms: float
    off_p99_ms: float
    uploading_p99_ms: float
    resting_p99_ms: float
    claim_ms: float


class Commit(NamedTuple):
    """A manifest version and when its file was written, by this machine's clock."""

    version: Version
    at_s: float


class TierBench:
    """Runs on a directory of its own.

    Args:
        directory: for logs, and for the tier; it exists.
        log_bytes: how much is uploaded in each run.
        phase_s: how long producers are timed where nothing ends by itself.
        progress: told what is being done, and how far it is in all, from 0 to 1.
    """

    def __init__(
        self,
        directory: Path,
        *,
        log_bytes: int,
        phase_s: float,
        progress: Callable[[str, float], None],
    ) -> None:
        self._directory = directory
        self._log_bytes = log_bytes
        self._phase_s = phase_s
        self._progress = progress

    async def run(self, runs: int) -> list[Line]:
        """All figures of so many runs.

        Raises:
            GantryError: see the module.
        """
        async with AsyncExitStack() as stack:
            members = await stack.enter_async_context(Members(self._directory))
            client = await stack.enter_async_context(session(members.name_servers))
            await self._fill(members, client)
            found = []
            for number in range(runs):
                self._progress(f"run {number + 1} of {runs}", number / runs)
                found.append(await self._one(members, client, number))
        return lines(found)

    async def _fill(self, members: Members, client: Session) -> None:
        await members.start()
        await make_topic(client, TOPIC)
        done = 0

        def told(size: int) -> None:
            nonlocal done
            done += size
            self._progress("filling the log", min(1.0, done / self._log_bytes))

        await fill(client, TOPIC, self._log_bytes, told)
        await members.stop()

    async def _one(self, members: Members, client: Session, number: int) -> Run:
        await members.start()
        off = await self._timed(client, self._phase_s)
        await members.stop()
        tier = self._directory / f"tier-{number}"
        tier.mkdir()
        uid = f"bench-{number}"
        group = await members.start(
            {
                "GANTRY_TIER_URL": tier.as_uri(),
                "GANTRY_TIER_SHARD": uid,
                "GANTRY_TIER_PACK_BYTES": str(PACK_BYTES),
            }
        )
        manifest = _Manifest(tier, uid)
        end = max(member.max_offset for member in group.members)
        uploading = await self._timed_upload(members, client, manifest, end)
        commits = manifest.read()
        resting = await self._timed(client, self._phase_s)
        claim_ms = await self._killed(members, manifest)
        await members.stop()
        for path in sorted(tier.rglob("*"), reverse=True):  # the disk is not for all runs at once
            with suppress(OSError):
                path.unlink()
        return Run(*upload(commits), p99(off), p99(uploading), p99(resting), claim_ms)

    async def _timed(self, client: Session, seconds: float) -> list[float]:
        """Producers' times over so long."""
        async with Senders(client, TOPIC) as senders:
            await senders.flowing()
            await asyncio.sleep(seconds)
            senders.check()
            return senders.times_ms

    async def _timed_upload(
        self, members: Members, client: Session, manifest: _Manifest, end: int
    ) -> list[float]:
        """Producers' times until less than a pack of [0, `end`) is not in the tier."""
        async with Senders(client, TOPIC) as senders:
            deadline = time.monotonic() + UPLOAD_PATIENCE_S
            while manifest.count() < 1:
                members.check()
                await asyncio.sleep(LOOK_S)
                if time.monotonic() > deadline:
                    raise GantryError(f"No broker claimed the tier in {UPLOAD_PATIENCE_S:.0f} s.")
            await senders.flowing()
            while manifest.end() + PACK_BYTES <= end:
                members.check()
                if time.monotonic() > deadline:
                    raise GantryError(
                        f"The log was not uploaded in {UPLOAD_PATIENCE_S:.0f} s: the tier ends at "
                        f"{manifest.end()}, the log at {end}."
                    )
                await asyncio.sleep(LOOK_S)
            senders.check()
            return senders.times_ms

    async def _killed(self, members: Members, manifest: _Manifest) -> float:
        """SIGKILL the master; ms from the next promotion to the claim in the manifest."""
        async with AdminClient([members.endpoint], members.token) as admin:
            epoch = await members.kill_master()
            promoted_s = await _promotion(admin, epoch)
        deadline = time.monotonic() + CLAIM_PATIENCE_S
        while time.monotonic() < deadline:
            for commit in manifest.read():
                if isinstance(commit.version, Claim) and commit.version.epoch > epoch:
                    return 1000 * (commit.at_s - promoted_s)
            await asyncio.sleep(LOOK_S)
        raise GantryError(f"The new master did not claim the tier in {CLAIM_PATIENCE_S:.0f} s.")


async def _promotion(admin: AdminClient, epoch: int) -> float:
    """When a master of a later epoch than `epoch` was elected, by this machine's clock.

    Raises:
        GantryError: none is.
    """
    try:
        async with asyncio.timeout(CLAIM_PATIENCE_S):
            async for event in admin.watch():
                now_s = time.time()
                if (
                    event.group == GROUP
                    and event.master_epoch > epoch
                    and event.master_broker_id is not None
                ):
                    return now_s
    except TimeoutError:
        pass
    raise GantryError(f"No master was elected in {CLAIM_PATIENCE_S:.0f} s.")


class _Manifest:
    """The manifest versions of one group, in a directory."""

    def __init__(self, root: Path, uid: str) -> None:
        self._place = shard(CLUSTER, uid)
        self._folder = root / self._place.key("man")

    def count(self) -> int:
        """How many there are."""
        return len(list(self._folder.glob("*")))

    def end(self) -> int:
        """Where the tier ends as of the last one; 0 without any."""
        names = sorted(self._folder.glob("*"))
        return self._decoded(names[-1]).end if names else 0

    def read(self) -> list[Commit]:
        """All of them."""
        return [
            Commit(self._decoded(path), path.stat().st_mtime)
            for path in sorted(self._folder.glob("*"))
        ]

    def _decoded(self, path: Path) -> Version:
        return decode_version(path.read_bytes(), self._place, int(path.name))


def upload(commits: list[Commit]) -> tuple[float, float]:
    """MB/s of the log from the claim to the last whole pack, and the median ms of a whole pack.

    A commit may add several packs; those that were cut early, because their time was up, are no
    measure of speed, and end the account.

    Raises:
        GantryError: there is no whole pack.
    """
    began = before = commits[0]
    between = []
    for commit in commits[1:]:
        size = commit.version.end - before.version.end
        if not isinstance(commit.version, Append) or size < PACK_BYTES // 2:
            break
        between.append(1000 * (commit.at_s - before.at_s) * PACK_BYTES / size)
        before = commit
    if not between:
        raise GantryError("No whole pack was uploaded: the log is too short for a measurement.")
    sent = before.version.end - began.version.end
    return sent / 1e6 / (before.at_s - began.at_s), statistics.median(between)


def p99(times_ms: list[float]) -> float:
    """The 99th percentile.

    Raises:
        GantryError: there are too few times for one.
    """
    if len(times_ms) < 100:
        raise GantryError(f"Only {len(times_ms)} messages were timed; 100 are needed for a p99.")
    return statistics.quantiles(times_ms, n=100, method="inclusive")[98]


def lines(runs: list[Run]) -> list[Line]:
    """The runs' figures, each over all runs."""

    def over(case: str, metric: str, unit: str, value: Callable[[Run], float]) -> Line:
        return line(BENCH, case, metric, unit, [value(run) for run in runs])

    return [
        over("upload", "mb_per_s", "MB/s", lambda run: run.upload_mb_s),
        over("upload", "pack_ms", "ms", lambda run: run.pack_ms),
        over("producers-off", "p99_ms", "ms", lambda run: run.off_p99_ms),
        over("producers-uploading", "p99_ms", "ms", lambda run: run.uploading_p99_ms),
        over("producers-resting", "p99_ms", "ms", lambda run: run.resting_p99_ms),
        over(
            "producers-uploading/off",
            "ratio",
            "",
            lambda run: run.uploading_p99_ms / run.off_p99_ms,
        ),
        over("producers-resting/off", "ratio", "", lambda run: run.resting_p99_ms / run.off_p99_ms),
        over("promotion-to-claim", "commit_ms", "ms", lambda run: run.claim_ms),
    ]
