"""`make chaos`: all scenarios on a real cluster, one after another, and one page about them.

The group uploads to a store in the cluster all the while, so every run is also judged by what lies
there. The installation stays, to be looked at; what an
earlier run left is removed first.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from harness import chaos, installation, store
from harness.kube import Kube

REPORT = installation.ROOT / "build" / "chaos" / "report.html"
BUCKET = "chaos"
TIER = {"packBytes": 256 * 1024, "lingerMs": 500}  # so that something is always being uploaded
TIER_PATIENCE_S = 120.0
REUSE = os.environ.get("GANTRY_E2E_REUSE") == "1"  # as for make e2e


def main(names: list[str]) -> int:
    """Play the scenarios with these names, or all; the exit code of the run."""
    manifests = chaos.named(*names)
    kube = installation.connect()
    installation.thaw_nodes()
    if not REUSE:
        installation.remove(kube)
    print(f"installed and Available after {installation.install(kube):.0f} s", flush=True)
    upload(kube)
    outcome = chaos.run(kube, manifests, REPORT)
    print(f"\n{REPORT.with_suffix('.md').read_text()}\nwritten to {REPORT} (.md, .json)")
    return outcome.code


def upload(kube: Kube) -> None:
    """Let the group upload to a store in the cluster, and wait until it does."""
    tier: dict[str, Any] = store.start(kube, BUCKET) | TIER
    kube.patch("brokergroup", installation.GROUP, {"spec": {"tier": tier}})
    kube.wait_for("brokergroup", installation.GROUP, "TierHealthy", TIER_PATIENCE_S)
    kube.wait_for("brokergroup", installation.GROUP, "Available", TIER_PATIENCE_S)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LookupError as error:
        sys.exit(str(error))
