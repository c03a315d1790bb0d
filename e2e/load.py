"""`make e2e-load`: load ×10 and back on a real cluster, with an autoscaler that sets the fronts.

One unmodified Java producer sends to fronts all along; nine more come and go. The
HorizontalPodAutoscaler of the FrontGroup asks the cluster's metrics server. Shown are sends, fronts
and gaps over time; refused is a run in which a send failed, a message was lost, or a storage pod
was touched. It takes about fifteen minutes, since Kubernetes takes fronts away after five.

What a front needs differs between machines by a factor of three, so it is measured first: the
CPU request of a front is two and a half times what it takes for one producer.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from gantry_operator import names
from harness import installation, java, quiet
from harness.installation import CONTROLLERS, GROUP, ROOT
from harness.report import Account, Report
from harness.shell import CommandError
from harness.timeline import Panel, longest_gaps, picture, rate
from harness.waiting import wait_until
from harness.wishes import manifest

if TYPE_CHECKING:
    from harness.java import JavaClient
    from harness.kube import Kube, Object

FOLDER = ROOT / "build" / "load"
FRONTS, TIMES = "clients", 10
AUTOSCALING = {"enabled": True, "minReplicas": 1, "maxReplicas": 4}
NAMESERVER = f"{names.nameserver_service(CONTROLLERS)}:{names.NAMESERVER_PORT}"
PAUSE_MS = 30  # between two messages of a producer: ten of them leave a machine of two cores room
SMALL = {"requests": {"cpu": "50m", "memory": "64Mi"}}
OF_ITS_REQUEST = 0.4  # what one producer takes of a front; the autoscaler aims at 0.7
MEASURED_S = 75.0  # after as long again, since figures are of the last quarter of a minute
PATIENCE_S = 300.0
SHRINKS_WITHIN_S = 600.0  # of which Kubernetes looks back for five minutes
STEADY_S = 150.0  # with all fronts: producers connect again after two minutes
STEP_S = 5.0
GAP_LIMIT_MS = 500.0


class Watch:
    """The number of Ready fronts over time, and the storage pods that were ever seen."""

    def __init__(self, kube: Kube) -> None:
        self.fronts: list[tuple[float, int]] = []
        self.storage: set[tuple[str, int]] = set()
        self._kube = kube
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def forget_storage(self) -> set[tuple[str, int]]:
        """Begin anew with what there is now: brokers are rolled when the first front comes."""
        self.storage = storage(self._kube)
        return set(self.storage)

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def count(self) -> int:
        """Ready fronts, as seen last."""
        return self.fronts[-1][1] if self.fronts else 0

    def _look(self) -> None:
        while not self._ended.wait(STEP_S / 2):
            with suppress(CommandError):  # looked at again
                count = len(ready(self._kube, names.FRONT, FRONTS))
                self.fronts.append((time.monotonic(), count))
                self.storage |= storage(self._kube)


def main() -> int:
    """Play it; 0 if nothing failed, was lost or was touched."""
    kube = installation.connect()
    installation.thaw_nodes()
    installation.remove(kube)
    installation.install(kube)
    found = installation.new_namespace(kube)
    try:
        return play(found)
    finally:
        found.delete("namespace", found.namespace)


def play(kube: Kube) -> int:
    """See ``main``."""
    size = {"size": "100Mi"}
    kube.apply(
        manifest("ControllerGroup", CONTROLLERS, storage=size, resources=SMALL),
        manifest("BrokerGroup", GROUP, storage={"size": "2Gi"}, resources=SMALL),
        front_group(replicas=1),
    )
    kube.wait_for("brokergroup", GROUP, "FullyReplicated", PATIENCE_S)
    kube.wait_for("frontgroup", FRONTS, "Ready", PATIENCE_S)
    watch, report = Watch(kube), Report(quiet.Watch().lap)
    producers = [producer(kube, 0)]
    wait_until("the producer sends", PATIENCE_S, producers[0].flows)
    cores = cost(kube) / OF_ITS_REQUEST
    print(f"a front asks for {cores * 1000:.0f} m of a core", flush=True)
    requests = {"cpu": f"{cores * 1000:.0f}m", "memory": "96Mi"}
    kube.apply(front_group(autoscaling=AUTOSCALING, resources={"requests": requests}))
    kube.wait_for("frontgroup", FRONTS, "Ready", PATIENCE_S)
    time.sleep(MEASURED_S)  # a front that has just started takes more
    wait_until("one front serves", SHRINKS_WITHIN_S, lambda: watch.count() == 1)
    before = watch.forget_storage()
    steps = [("Load x1", time.monotonic())]
    time.sleep(60)
    print("ten times the load comes", flush=True)
    steps.append(("Load x10", time.monotonic()))
    producers += [producer(kube, number) for number in range(1, TIMES)]
    most = AUTOSCALING["maxReplicas"]
    wait_until(f"{most} fronts serve", PATIENCE_S, lambda: watch.count() == most)
    print(f"{most} fronts serve after {time.monotonic() - steps[-1][1]:.0f} s", flush=True)
    time.sleep(STEADY_S)
    print("nine tenths of it go", flush=True)
    steps.append(("Load x1 again", time.monotonic()))
    logs = [one.stop() for one in producers[1:]]
    wait_until("one front serves again", SHRINKS_WITHIN_S, lambda: watch.count() == 1)
    print(f"one front serves after {time.monotonic() - steps[-1][1]:.0f} s", flush=True)
    time.sleep(30)
    logs.insert(0, producers[0].stop())
    watch.end()
    lanes = [[ack.at_ms / 1000 for ack in log.acks] for log in logs]
    sent, lost = sum(map(len, lanes)), 0
    for number, log in enumerate(logs):
        pod = java.consumer_pod(
            f"consumer-{number}", java_image(), NAMESERVER, topic(number), len(log.acks)
        )
        received = java.start(kube, pod).ended(PATIENCE_S).consumed()
        lost += len(log.acknowledged() - received)
        kube.delete("pod", f"consumer-{number}")
    failed = sum(len(log.nacks) for log in logs)
    touched = len(watch.storage - before)
    account = Account(sent, lost)
    every = [at_s for lane in lanes for at_s in lane]
    ends = [*(at_s for _, at_s in steps[1:]), time.monotonic()]
    for (name, begun_s), end_s in zip(steps, ends, strict=True):
        gaps = [gap for gap in (longest(lane, begun_s, end_s) for lane in lanes) if gap]
        report.add(name, "write gap of a producer", gaps, limit=GAP_LIMIT_MS, account=account)
        account = Account()
        rates = [value for at_s, value in rate(every, STEP_S) if begun_s <= at_s < end_s]
        report.add(name, "sends", rates, unit="1/s")
        fronts = [float(count) for at_s, count in watch.fronts if begun_s <= at_s < end_s]
        report.add(name, "fronts", fronts, unit="")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "load.svg").write_text(drawn(lanes, watch.fronts))
    print(f"\n{report.write(FOLDER).read_text()}\n{failed} sends failed, {lost} messages lost,")
    print(f"{touched} storage pods touched; written to {FOLDER}")
    return int(bool(failed or lost or touched))


def cost(kube: Kube) -> float:
    """The cores that all fronts take together, over some time."""
    time.sleep(MEASURED_S)
    found: list[float] = []
    until_s = time.monotonic() + MEASURED_S
    while time.monotonic() < until_s or not found:
        with suppress(CommandError):  # no figures yet
            selector = f"--selector={names.selector_text(names.FRONT, FRONTS)}"
            rows = kube.ctl("top", "pod", "--no-headers", selector).splitlines()
            found.append(sum(int(row.split()[1].removesuffix("m")) for row in rows) / 1000)
        time.sleep(STEP_S)
    return max(sum(found) / len(found), 0.01)


def front_group(**spec: object) -> Object:
    return manifest("FrontGroup", FRONTS, **spec)


def drawn(lanes: list[list[float]], fronts: list[tuple[float, int]]) -> str:
    """The picture; times as of 1970."""
    shift_s = time.time() - time.monotonic()

    def shown(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
        return [((at_s + shift_s) * 1000, value) for at_s, value in points]

    every = [at_s for lane in lanes for at_s in lane]
    return picture(
        [
            Panel("Acknowledged sends", "1/s", shown(rate(every, STEP_S))),
            Panel("Fronts that serve", "", shown([(at, float(count)) for at, count in fronts])),
            Panel(
                "Longest time between two acknowledgements of one producer",
                "ms",
                shown(longest_gaps(lanes, min(every), STEP_S)),
            ),
        ]
    )


def longest(lane: list[float], begun_s: float, end_s: float) -> float | None:
    """The longest gap in ms that ends between two times; None without any."""
    gaps = [gap_ms for at_s, gap_ms in longest_gaps([lane], 0.0, 0.001) if begun_s <= at_s < end_s]
    return max(gaps, default=None)


def producer(kube: Kube, number: int) -> JavaClient:
    pod = java.producer_pod(f"producer-{number}", java_image(), NAMESERVER, topic(number), PAUSE_MS)
    return java.start(kube, pod)


def topic(number: int) -> str:
    return f"load-{number}"


def java_image() -> str:
    return os.environ["GANTRY_E2E_JAVA_IMAGE"]


def ready(kube: Kube, component: str, owner: str) -> list[Object]:
    """The pods of a resource that are Ready and not about to end."""
    return [
        pod
        for pod in kube.list("pods", names.selector_text(component, owner))
        if "deletionTimestamp" not in pod["metadata"]
        and any(
            item["type"] == "Ready" and item["status"] == "True"
            for item in pod["status"].get("conditions", ())
        )
    ]


def storage(kube: Kube) -> set[tuple[str, int]]:
    """Each storage pod that there is, and how often its container was restarted."""
    return {
        (pod["metadata"]["uid"], status["restartCount"])
        for pod in kube.list("pods", names.selector_text(names.BROKER, GROUP))
        for status in pod["status"].get("containerStatuses", ())
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LookupError, TimeoutError) as error:
        sys.exit(str(error))
