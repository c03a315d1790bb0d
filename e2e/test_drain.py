"""A BrokerGroup that is deleted while another one of its cluster stays: drained, then gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import client
from harness.installation import CONTROLLERS
from harness.waiting import wait_until
from harness.wishes import manifest

if TYPE_CHECKING:
    from harness.kube import Kube

STAYS, LEAVES = "stays", "leaves"
TOPIC, READER = "payments", "billing"
SMALL = {"requests": {"cpu": "50m", "memory": "64Mi"}}
ALONE = {"replicas": 1, "storage": {"size": "200Mi"}, "resources": SMALL}
READY_PATIENCE_S, DRAIN_PATIENCE_S = 120.0, 240.0


@pytest.mark.usefixtures("kube")
def test_a_deleted_group_stays_until_it_is_read(scratch: Kube, image: str) -> None:
    """What waits for whom is told meanwhile, and new messages go to the group that stays."""
    scratch.apply(
        manifest("ControllerGroup", CONTROLLERS, image=image, replicas=1, resources=SMALL),
        *(manifest("BrokerGroup", name, **ALONE) for name in (STAYS, LEAVES)),
    )
    for name in (STAYS, LEAVES):
        scratch.wait_for("brokergroup", name, "Available", READY_PATIENCE_S)
    sent = [f"before {number:02d}" for number in range(40)]
    client.produce(scratch, TOPIC, sent)
    assert len(client.addresses(scratch, TOPIC)) == 2
    read = client.read_on(scratch, TOPIC, READER, f"--idle={client.QUIET_S:g}")
    unread = [f"unread {number:02d}" for number in range(40)]
    client.produce(scratch, TOPIC, unread)

    scratch.ctl("delete", "brokergroup", LEAVES, "--wait=false")
    wait_until("the drain says who is to read", DRAIN_PATIENCE_S, lambda: READER in _waits(scratch))
    during = [f"during {number:02d}" for number in range(20)]
    client.produce(scratch, TOPIC, during)
    read += client.read_on(scratch, TOPIC, READER, f"--idle={client.QUIET_S:g}")
    wait_until("it goes", DRAIN_PATIENCE_S, lambda: scratch.get("brokergroup", LEAVES) is None)

    after = [f"after {number:02d}" for number in range(20)]
    client.produce(scratch, TOPIC, after)
    read += client.read_on(scratch, TOPIC, READER, f"--idle={client.QUIET_S:g}")
    assert sorted(read) == sorted([*sent, *unread, *during, *after])
    assert len(client.addresses(scratch, TOPIC)) == 1


def _waits(kube: Kube) -> str:
    """Everything that the status says of the drain."""
    found = kube.get("brokergroup", LEAVES)
    return str(((found or {}).get("status") or {}).get("drain") or "")
