"""`make e2e-fleet`: `helm upgrade` of twenty broker groups to a new image, under load.

The groups wish no image, so all take that of the release. Two unmodified Java producers send all
the while: one to a topic that every group has, one to a topic of a single group, whose clients can
go nowhere else. Refused is a run in which a send failed, a message was lost, or two groups
restarted pods at the same time. It takes about twenty minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gantry_operator import names
from harness import client, installation, java, quiet
from harness.installation import CONTROLLERS, GROUP, IMAGE, RELEASE, ROOT
from harness.report import Account, Report
from harness.shell import CommandError, run
from harness.waiting import wait_until
from harness.wishes import manifest

if TYPE_CHECKING:
    from harness.java import JavaClient
    from harness.kube import Kube, Object

FOLDER = ROOT / "build" / "fleet"
SMALL = {"requests": {"cpu": "20m", "memory": "64Mi"}}
STORAGE = {"size": "200Mi", "whenDeleted": "Delete"}
REPLICAS = 2
ONE_IS_ENOUGH = {"minInSyncReplicas": 1}  # two of two take no sends while one restarts
NAMESERVER = f"{names.nameserver_service(CONTROLLERS)}:{names.NAMESERVER_PORT}"
EVERYWHERE, ALONE = "everywhere", "alone"
PAUSE_MS = 40
POD_LINE = (
    "{.metadata.name}|{.metadata.uid}|{.metadata.labels.app\\.kubernetes\\.io/instance}|"
    "{.metadata.deletionTimestamp}|"
    '{.status.conditions[?(@.type=="Ready")].status}|{.spec.containers[*].image}{"\\n"}'
)
LOOK_S = 1.0
STARTED_AT_ONCE = 3  # processes that start take all of a small machine
START_PATIENCE_S = 600.0
ROLL_PATIENCE_S = 180.0  # of one group
GAP_LIMIT_MS = 1000.0
REASONS = 8  # of failed sends, the most frequent


class Watch:
    """Which groups restart pods, from what the API server says of each pod.

    Attributes:
        most: the largest number of groups at one time, with their names.
        order: groups in the order in which they began.
    """

    def __init__(self, kube: Kube, image: str, groups: list[str]) -> None:
        self.most: frozenset[str] = frozenset()
        self.order: list[str] = []
        self._image, self._groups = image, groups
        self._pods: dict[str, PodSeen] = {}
        selector = f"{names.LABEL_NAME}={names.APP_NAME},{names.LABEL_COMPONENT}={names.BROKER}"
        self._kubectl = subprocess.Popen(
            [
                *("kubectl", f"--kubeconfig={kube.kubeconfig}", f"--namespace={kube.namespace}"),
                *("get", "pods", f"--selector={selector}", "--watch", f"-o=jsonpath={POD_LINE}"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._kubectl.terminate()
        self._kubectl.wait()
        self._thread.join()

    def rolling(self) -> frozenset[str]:
        """Groups that have not all their pods, or one that was not Ready yet."""
        there = Counter(pod.group for pod in [*self._pods.values()] if pod.is_there)
        return frozenset(name for name in self._groups if there[name] < replicas_of(name))

    def is_done(self) -> bool:
        """Whether every group has the new image, in all its pods."""
        pods = [*self._pods.values()]
        return not self.rolling() and all(self._image in pod.images for pod in pods)

    def _follow(self) -> None:
        total = sum(map(replicas_of, self._groups))
        assert self._kubectl.stdout is not None
        for line in self._kubectl.stdout:
            name, uid, group, ends, ready, images = line.rstrip("\n").split("|")
            before = self._pods.get(name)
            served = before is not None and before.uid == uid and before.is_there
            is_there = not ends and (served or ready == "True")
            self._pods[name] = PodSeen(uid, group, is_there, images)
            if len(self._pods) < total:
                continue  # of the list that the watch begins with
            now = self.rolling()
            self.order += sorted(now - set(self.order))
            self.most = max(self.most, now, key=len)


class PodSeen(NamedTuple):
    """A pod as it was heard of last.

    Attributes:
        uid: another one once it was replaced.
        group: whose it is.
        is_there: it was Ready once, and is not about to end. A probe that a busy machine answers
            late is no restart.
        images: of its containers.
    """

    uid: str
    group: str
    is_there: bool
    images: str


def main() -> int:
    """Play it; 0 if nothing failed, nothing was lost, and groups went one by one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, default=20, metavar="N", help="default %(default)s")
    count = parser.parse_args().groups
    kube = installation.connect()
    installation.thaw_nodes()
    installation.remove(kube)
    installation.install(kube)
    groups = [GROUP, *(f"fleet-{number:02}" for number in range(1, count))]
    try:
        return play(kube, groups)
    finally:
        installation.remove(kube)


def play(kube: Kube, groups: list[str]) -> int:
    """See ``main``; the first group is that of the example."""
    print(f"{len(groups)} groups start", flush=True)
    for batch in batched(groups[1:], STARTED_AT_ONCE):
        kube.apply(*map(fleet_group, batch))
        for name in batch:
            kube.wait_for("brokergroup", name, "FullyReplicated", START_PATIENCE_S)
    for topic, options in ((EVERYWHERE, ()), (ALONE, ("--group", groups[-1]))):
        made = partial(created, kube, topic, options)
        wait_until(f"topic {topic} is made", START_PATIENCE_S, made)
    producers = [producer(kube, EVERYWHERE), producer(kube, ALONE)]
    for one in producers:
        wait_until("the producers send", START_PATIENCE_S, one.flows)
    image = new_image(kube)
    watch, report = Watch(kube, image, groups), Report(quiet.Watch().lap)
    began_s = time.monotonic()
    print(f"helm upgrade to {image}", flush=True)
    try:
        upgrade(kube, image)
        upgraded_s = time.monotonic() - began_s
        patience_s = ROLL_PATIENCE_S * len(groups)
        wait_until("every group has the new image", patience_s, watch.is_done, poll_s=LOOK_S)
        rolled_s = time.monotonic() - began_s
        for name in groups:
            kube.wait_for("brokergroup", name, "FullyReplicated", START_PATIENCE_S)
    finally:
        watch.end()
    print(f"rolled after {rolled_s:.0f} s; groups in their order: {' '.join(watch.order)}")
    print(f"at most {len(watch.most)} at once: {', '.join(sorted(watch.most))}", flush=True)
    logs = [one.stop() for one in producers]
    lost = 0
    for topic, log in zip((EVERYWHERE, ALONE), logs, strict=True):
        pod = java.consumer_pod(f"{topic}-reader", java_image(), NAMESERVER, topic, len(log.acks))
        received = java.start(kube, pod).ended(START_PATIENCE_S).consumed()
        lost += len(log.acknowledged() - received)
    failed = sum(len(log.nacks) for log in logs)
    for topic, log in zip((EVERYWHERE, ALONE), logs, strict=True):
        for reason, count in Counter(nack.reason for nack in log.nacks).most_common(REASONS):
            first_s = next(n.at_ms for n in log.nacks if n.reason == reason) / 1000 - began_s
            print(f"{topic}: {count} sends failed from {first_s:.1f} s on: {reason[:300]}")
    scenario = f"helm upgrade of {len(groups)} groups to a new image"
    account = Account(sum(len(log.acks) for log in logs), lost)
    report.add(scenario, "all groups rolled", [rolled_s], unit="s", account=account)
    report.add(scenario, "operator upgraded", [upgraded_s], unit="s")
    report.add(scenario, "groups that restart pods at once", [len(watch.most)], unit="", limit=1)
    report.add(scenario, "sends that failed", [failed], unit="", limit=0)
    for topic, log in zip(("all groups", "one group"), logs, strict=True):
        gap = log.longest_gap_ms(began_s * 1000)
        report.add(scenario, f"write gap, topic of {topic}", [gap or 0], limit=GAP_LIMIT_MS)
    print(f"\n{report.write(FOLDER).read_text()}\n{failed} sends failed, {lost} messages lost")
    return int(bool(failed or lost or len(watch.most) > 1))


def created(kube: Kube, topic: str, options: tuple[str, ...]) -> bool:
    """Whether a topic could be made; a machine on which so much has just started may be slow."""
    with suppress(CommandError):
        client.create_topic(kube, topic, *options)
        return True
    return False


def batched(names_: list[str], size: int) -> list[list[str]]:
    return [names_[start : start + size] for start in range(0, len(names_), size)]


def replicas_of(group: str) -> int:
    """That of the example has three."""
    return 3 if group == GROUP else REPLICAS


def fleet_group(name: str) -> Object:
    """A small group of the release's image."""
    sizes = {"storage": STORAGE, "resources": SMALL, "clients": {"door": {"resources": SMALL}}}
    return manifest("BrokerGroup", name, replicas=REPLICAS, replication=ONE_IS_ENOUGH, **sizes)


def new_image(kube: Kube) -> str:
    """Another name of the image, which makes it another one for Kubernetes."""
    repository, _, tag = IMAGE.rpartition(":")
    image = f"{repository}:{tag}-next"
    name_it = ("ctr", "--namespace=k8s.io", "images", "tag", "--force")
    both = [f"docker.io/library/{name}" for name in (IMAGE, image)]
    for node in installation.workers(kube):
        run("docker", "exec", node, *name_it, *both)
    return image


def upgrade(kube: Kube, image: str) -> None:
    """`helm upgrade --wait`, as a user does it."""
    tag = image.rpartition(":")[2]
    run(
        *("helm", "upgrade", RELEASE, str(ROOT / "charts" / "gantry"), "--reuse-values"),
        *(f"--kubeconfig={kube.kubeconfig}", "--namespace", kube.namespace),
        *("--set", f"image.tag={tag}", "--wait", "--timeout", "5m"),
        timeout_s=START_PATIENCE_S,
    )


def producer(kube: Kube, topic: str) -> JavaClient:
    pod = java.producer_pod(f"{topic}-writer", java_image(), NAMESERVER, topic, PAUSE_MS)
    return java.start(kube, pod)


def java_image() -> str:
    return os.environ["GANTRY_E2E_JAVA_IMAGE"]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LookupError, TimeoutError, CommandError, java.JavaError) as error:
        sys.exit(str(error))
