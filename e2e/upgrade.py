"""`make e2e-upgrade FROM=REF`: a release of another version is upgraded to this, and set back.

An unmodified Java producer sends all the while. Helm changes no definition that exists, so there
are two orders: definitions first, as the chart's README says, and the release first, as whoever
forgets them does. Then the operator of before has to go on until they come. Refused is a run in
which a send failed or a message was lost, or which does not come to its end.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_operator import names
from harness import client, installation, java
from harness.installation import CONTROLLERS, GROUP, IMAGE, RELEASE, ROOT
from harness.quiet import Watch
from harness.report import Account, Report
from harness.shell import CommandError, run
from harness.waiting import wait_until

if TYPE_CHECKING:
    from harness.java import JavaClient
    from harness.kube import Kube

FOLDER = ROOT / "build" / "upgrade"
NAMESERVER = f"{names.nameserver_service(CONTROLLERS)}:{names.NAMESERVER_PORT}"
TOPIC = "upgraded"
PAUSE_MS = 20
PATIENCE_S = 600.0
FORGOTTEN_S = 40.0  # so long nobody thinks of the definitions
GAP_LIMIT_MS = 1000.0


class Upgrade:
    """One way from a version to this one, and back.

    Args:
        kube: the namespace of the release.
        source: a checkout of the version before.
        image: that version's.
        report: where figures are entered.
    """

    def __init__(self, kube: Kube, source: Path, image: str, report: Report) -> None:
        self.kube = kube
        self.source = source
        self.image = image
        self.report = report

    def play(self, order: str) -> None:
        """Raises AssertionError: a send failed, or a message was lost."""
        installation.remove(self.kube)
        installation.install(self.kube, self.source, self.image)
        installation.wait_until_whole(self.kube)
        client.create_topic(self.kube, TOPIC)
        producer = java.start(self.kube, self._producer())
        wait_until("the producer sends", PATIENCE_S, producer.flows)
        try:
            self._go(order, producer)
        except (AssertionError, CommandError, TimeoutError) as error:
            error.add_note(self.kube.ctl("logs", f"deployment/{RELEASE}-operator", "--tail=30"))
            raise
        log = producer.stop()
        reader = java.consumer_pod("reader", _java_image(), NAMESERVER, TOPIC, len(log.acks))
        received = java.start(self.kube, reader).ended(PATIENCE_S).consumed()
        lost = len(log.acknowledged() - received)
        account = Account(len(log.acks), lost)
        gap_ms = log.longest_gap_ms(self._began_s * 1000) or 0.0
        self.report.add(order, "write gap", [gap_ms], limit=GAP_LIMIT_MS, account=account)
        self.report.add(order, "sends that failed", [len(log.nacks)], unit="", limit=0)
        assert not lost, f"{lost} messages are lost"
        assert not log.nacks, f"{len(log.nacks)} sends failed, the first: {log.nacks[0].reason}"

    def _go(self, order: str, producer: JavaClient) -> None:
        self._began_s = time.monotonic()
        if order == "definitions first":
            self._definitions()
            self._change_something("before the release is upgraded")
            installation.upgrade(self.kube, ROOT, IMAGE)
        else:
            installation.upgrade(self.kube, ROOT, IMAGE)
            time.sleep(FORGOTTEN_S)
            self._change_something("while the definitions are those of before")
            self._definitions()
        self._wait_for(IMAGE)
        self.report.add(order, "all has the new image", [self._lap()], unit="s")
        self._change_something("with the new release")
        began_back_s = time.monotonic()
        run(
            *("helm", "rollback", RELEASE, f"--kubeconfig={self.kube.kubeconfig}"),
            *("--namespace", self.kube.namespace),
        )
        self._wait_for(self.image)
        back_s = time.monotonic() - began_back_s
        self.report.add(order, "all has the old image again", [back_s], unit="s")
        assert producer.flows(time.monotonic() * 1000 - 1000), "the producer does not send"

    def _lap(self) -> float:
        return time.monotonic() - self._began_s

    def _definitions(self) -> None:
        """By the command of the chart's README."""
        print(f"  {self._lap():.0f} s: definitions", flush=True)
        readme = (ROOT / "charts" / "gantry" / "README.md").read_text("utf-8")
        (command,) = re.findall(r"^kubectl (apply .*) -f charts/gantry/crds$", readme, re.MULTILINE)
        self.kube.ctl(*command.split(), "-f", str(ROOT / "charts" / "gantry" / "crds"))

    def _change_something(self, when: str) -> None:
        """Somebody serves: a changed setting is in force, and the status says so."""
        wished = str(5 + int(self._lap()) % 7)
        self.kube.patch("brokergroup", GROUP, {"spec": {"config": {"lock_wait_s": wished}}})
        wait_until(f"a change is carried out {when}", PATIENCE_S, self._is_done)
        print(f"  {self._lap():.0f} s: a change was carried out {when}", flush=True)

    def _is_done(self) -> bool:
        found = self.kube.get("brokergroup", GROUP) or {"metadata": {}}
        status = found.get("status", {})
        said = {one["type"]: one["status"] for one in status.get("conditions", ())}
        current = status.get("observedGeneration") == found["metadata"].get("generation")
        return bool(current) and (said.get("Ready"), said.get("Progressing")) == ("True", "False")

    def _wait_for(self, image: str) -> None:
        """Until all pods have it and all is well."""
        wait_until(f"all pods have {image}", PATIENCE_S, lambda: self._all_have(image), poll_s=1.0)
        installation.wait_until_whole(self.kube)
        wait_until("the group is well", PATIENCE_S, self._is_done)
        print(f"  {self._lap():.0f} s: all pods have {image}", flush=True)

    def _all_have(self, image: str) -> bool:
        pods = self.kube.list("pods", f"{names.LABEL_NAME}={names.APP_NAME}")
        return all(
            any(container["image"] == image for container in pod["spec"]["containers"])
            and not pod["metadata"].get("deletionTimestamp")
            for pod in pods
        )

    def _producer(self) -> dict[str, object]:
        return java.producer_pod("writer", _java_image(), NAMESERVER, TOPIC, PAUSE_MS)


def main() -> int:
    """Play both orders; 0 if no send failed and nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--source", type=Path, required=True, help="a checkout of the version before"
    )
    parser.add_argument("--image", required=True, help="the image of that version")
    parser.add_argument("--version", required=True, help="its name in the report")
    options = parser.parse_args()
    kube, report = installation.connect(), Report(Watch().lap)
    installation.thaw_nodes()
    upgrade = Upgrade(kube, options.source, options.image, report)
    try:
        for order in ("definitions first", "release first"):
            print(f"from {options.version}, {order}:", flush=True)
            upgrade.play(order)
    finally:
        installation.remove(kube)
        if report.rows:
            print(f"\n{report.write(FOLDER).read_text()}")
    return 0


def _java_image() -> str:
    return os.environ["GANTRY_E2E_JAVA_IMAGE"]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (AssertionError, LookupError, TimeoutError, CommandError, java.JavaError) as error:
        sys.exit("\n".join((str(error), *getattr(error, "__notes__", ()))))
