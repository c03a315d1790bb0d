"""`make demo-kind`: what a user does on a real cluster, and what happens when the master goes.

All the while the master uploads to an S3 store, a pod of its own. Every command that a user would
type is shown as it is run. The cluster stays, to be looked at.
"""

from __future__ import annotations

import json
import sys
import time

from gantry_operator import names
from harness import faults, installation, soak, store
from harness.kube import Kube, Object
from harness.quiet import Watch
from harness.report import Report
from harness.trial import Figure, Trial

STEADY_S = 3.0
CLIENT = "client"
BUCKET = "demo"
TIER_PATIENCE_S = 180.0  # brokers are restarted one by one


def main() -> int:
    """Play all acts; 0 when nothing was lost and nobody else was master in an epoch."""
    kube = installation.connect()
    installation.thaw_nodes()
    say("Gantry is installed, and a broker group of three is wished for")
    shell("helm upgrade --install gantry charts/gantry --namespace gantry --create-namespace")
    shell("kubectl --namespace gantry apply -f examples/brokergroup.yaml")
    ready_s = installation.install(kube)
    say(f"Available after {ready_s:.1f} s")
    show(kube, "get", "controllergroup,brokergroup,pods", "-o", "wide")

    say("It gets a tier: an S3 store, here a pod, and a place in it")
    tier = store.start(kube, BUCKET) | {"lingerMs": 500}
    change = {"spec": {"tier": tier}}
    show(kube, "patch", "brokergroup", installation.GROUP, "--type=merge", "-p", json.dumps(change))
    kube.wait_for("brokergroup", installation.GROUP, "TierHealthy", TIER_PATIENCE_S)

    say("A client writes and reads without a pause, in a pod outside the group")
    client = soak.start(
        kube,
        CLIENT,
        image=installation.LAB_IMAGE,
        controllers=installation.CONTROLLERS,
        group=installation.GROUP,
        node=installation.workers(kube)[0],
    )
    report = Report(Watch().lap)
    trial = Trial(kube, installation.GROUP, installation.CONTROLLERS, [client], report)
    trial.settle()
    time.sleep(STEADY_S)
    show_tier(kube)

    say("The master's process is killed from its node: SIGKILL, nobody is asked")
    trial.measure("Master's process SIGKILLed", faults.kill_master_process, runs=1)
    show(kube, "get", "brokergroup")
    show_tier(kube)
    say("The new master's pod is deleted, as a drain or a rolling update does it")
    trial.measure(
        "Master's pod deleted gracefully",
        faults.delete_master_pod,
        runs=1,
        figures=[Figure("write gap of the hand-over")],
    )
    show(kube, "get", "brokergroup")
    show_tier(kube)
    trial.settle()  # the pod that was deleted is back
    kube.delete("pod", CLIENT)
    say("Each master has uploaded in its turn, and the tier is whole")
    judge_tier(kube, tier)
    say("The account")
    print(report.markdown())
    print(
        "The cluster stays. Look at it with\n"
        f"  export KUBECONFIG={kube.kubeconfig}\n"
        "  kubectl --namespace gantry get bg --watch\n"
        "and remove it with make cluster-down."
    )
    return 0


def judge_tier(kube: Kube, tier: Object) -> None:
    """What lies in the tier, and whether every byte of it is right.

    In a broker's pod: it has the tier's keys mounted, and a controller's has none.
    """
    pod = names.pod(names.broker_statefulset(installation.GROUP), 0)
    for verb in ("show", "verify"):
        command = ("gantry", "tier", verb, tier["url"], "--endpoint", tier["endpoint"])
        show(kube, "exec", pod, "--", *command)


def show_tier(kube: Kube) -> None:
    """Who uploads, and how far."""
    show(kube, "get", "brokergroup", installation.GROUP, "-o", "jsonpath={.status.tier}")


def say(sentence: str) -> None:
    """One line of the story."""
    print(f"\n* {sentence}", flush=True)


def shell(command: str) -> None:
    """A command as a user would type it."""
    print(f"  $ {command}", flush=True)


def show(kube: Kube, *args: str) -> None:
    """A kubectl command with what it prints."""
    shell(f"kubectl --namespace {kube.namespace} {' '.join(args)}")
    for line in kube.ctl(*args).splitlines():
        print(f"  {line}")


if __name__ == "__main__":
    sys.exit(main())
