"""Leader election by a Lease: only its holder acts, and who loses it ends.

The rules are those of Kubernetes' own components. A foreign Lease counts as expired when it was
seen unchanged for its whole duration by our own clock; nobody compares clocks of two machines. A
holder that could not renew for the renew deadline stops at once, well before anybody else may
start: it ends the process, since a half-stopped operator is worse than none. Failover of brokers
does not wait for any of this.

See https://kubernetes.io/docs/concepts/architecture/leases/ and client-go's leaderelection package.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING, Any

from gantry_protocol.errors import EXIT_TEMPORARY, GantryError
from gantry_protocol.process import log

from gantry_operator.api.errors import AlreadyExists, ApiError, NotFound
from gantry_operator.api.kinds import LEASE

if TYPE_CHECKING:
    from gantry_operator.api.protocol import Api, Body

DURATION_S = 15
RENEW_DEADLINE_S = 10.0
RETRY_S = 2.0
ATTEMPT_S = 5.0  # a request on a dead connection hears nothing; the next one takes another
LOOK_S = 1.0  # of those who wait: so much longer than the Lease's duration a take-over takes
NAME = "gantry-operator"
_log = log.get("lease")


class LeaseLostError(GantryError):
    """The Lease could not be renewed in time, or somebody else holds it."""

    exit_code = EXIT_TEMPORARY


def micro_time(now: dt.datetime) -> str:
    """A moment as a Lease carries it."""
    return now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaderElection:
    """One candidate.

    Args:
        api: where the Lease is.
        namespace: of the Lease.
        identity: of this process, unlike any other's.
    """

    def __init__(self, api: Api, namespace: str, identity: str) -> None:
        self._api = api
        self._namespace = namespace
        self._identity = identity
        self._seen: tuple[str, float] = ("", 0.0)  # version of a foreign Lease, and since when
        self._renewed = float("-inf")

    @property
    def held(self) -> bool:
        """Whether this process may act: it renewed within the deadline."""
        return self._now() - self._renewed < RENEW_DEADLINE_S

    async def acquire(self) -> None:
        """Waits until the Lease is ours."""
        waiting = False
        while not await self._attempt():
            if not waiting:
                _log.info("waiting for the lease", namespace=self._namespace, lease=NAME)
                waiting = True
            await asyncio.sleep(LOOK_S)
        _log.info("lease acquired", namespace=self._namespace, lease=NAME, holder=self._identity)

    async def hold(self) -> None:
        """Renews until cancelled.

        Raises:
            LeaseLostError: not renewed within the deadline, or taken by somebody else.
        """
        while True:
            await asyncio.sleep(RETRY_S)
            try:
                async with asyncio.timeout(max(self._left_s(), 0.0)):
                    await self._attempt()
            except TimeoutError:
                pass
            if not self.held:
                raise LeaseLostError(
                    f"The lease {self._namespace}/{NAME} was not renewed for "
                    f"{RENEW_DEADLINE_S:.0f} s; the operator ends so that another one may act."
                )

    async def release(self) -> None:
        """Gives the Lease up, so that nobody has to wait for its end; failing is harmless."""
        if not self.held:
            return
        self._renewed = float("-inf")
        try:
            lease = await self._api.get(LEASE, self._namespace, NAME)
            if lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._api.update(LEASE, lease)
        except ApiError as error:
            _log.warning("lease not released", error=error)

    def _left_s(self) -> float:
        return RENEW_DEADLINE_S - (self._now() - self._renewed)

    async def _attempt(self) -> bool:
        """Takes or renews the Lease if that is allowed now; one that hangs is given up."""
        try:
            async with asyncio.timeout(ATTEMPT_S):
                return await self._try()
        except TimeoutError:
            _log.warning("lease not looked at", error=f"no answer within {ATTEMPT_S:.0f} s")
            return False

    async def _try(self) -> bool:
        started = self._now()
        try:
            lease = await self._api.get(LEASE, self._namespace, NAME)
        except NotFound:
            return await self._write(started, None)
        except ApiError as error:
            _log.warning("lease not read", error=error)
            return False
        holder = (lease.get("spec") or {}).get("holderIdentity")
        if holder and holder != self._identity and not self._is_expired(lease):
            self._renewed = float("-inf")
            return False
        return await self._write(started, lease)

    def _is_expired(self, lease: Body) -> bool:
        version = str(lease["metadata"].get("resourceVersion"))
        if self._seen[0] != version:
            self._seen = (version, self._now())
        duration_s = (lease.get("spec") or {}).get("leaseDurationSeconds") or DURATION_S
        return self._now() - self._seen[1] >= duration_s

    async def _write(self, started: float, lease: Body | None) -> bool:
        """Under the version that was read: of two candidates one fails.

        The time from which the Lease counts is that before the request, since nobody knows when
        within it the API server wrote it.
        """
        try:
            if lease is None:
                await self._api.create(LEASE, self._body(None))
            else:
                await self._api.update(LEASE, self._body(lease))
        except (AlreadyExists, ApiError) as error:
            _log.warning("lease not written", error=error)
            return False
        self._renewed = started
        return True

    def _body(self, old: Body | None) -> Body:
        now = micro_time(dt.datetime.now(dt.UTC))
        spec: dict[str, Any] = dict((old or {}).get("spec") or {})
        if spec.get("holderIdentity") != self._identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + bool(old)
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": DURATION_S,
            "renewTime": now,
        }
        meta = (old or {}).get("metadata") or {"name": NAME, "namespace": self._namespace}
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": meta, "spec": spec}

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
