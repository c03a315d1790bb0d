"""A producer's write gap by kind of failure: the cases of `gantry_lab bench failover`, as figures.

The group is a BrokerGroup on the no-Docker cluster, and its clients go to the group's one address,
as applications on Kubernetes do. Rule protected: a gap whose account is not clean is no figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_cli.trial.local import scratch_cluster
from gantry_local import manifests
from gantry_protocol.errors import GantryError

from gantry_lab.bench.failover import FailoverBench

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_lab.bench.figures import Runs


async def gaps(failure: str, count: int, advance: Callable[[], None]) -> Runs:
    """So many failures of one kind (see `failover.CASES`), one figure each.

    Raises:
        GantryError: the group did not heal, or a message was lost, or an epoch had two masters.
    """
    async with scratch_cluster(lambda _: None) as cluster:
        measured = FailoverBench(cluster, lambda _: advance())
        await measured.prepare(manifests.example())
        found, account = await measured.gaps(failure, count)
    if not account.clean:
        raise GantryError(f"The account is not clean: {account}.")
    totals = {
        "acknowledged": float(account.acknowledged),
        "lost": float(account.lost),
        "duplicated": float(account.duplicated),
    }
    return [{"gap_ms": gap, **totals} for gap in found]
