"""The command line inside the cluster: `gantry produce` and `gantry consume` in a controller's pod.

They are clients like any other; the pod only lends its image and its network.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gantry_operator import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.kube import Kube

CONTROLLERS = "gantry"
QUIET_S = 2.0
RUN_S = 120.0


def produce(kube: Kube, topic: str, bodies: Sequence[str], *options: str) -> dict[str, Any]:
    """Send messages; what became of them.

    Raises:
        CommandError: one of them was not acknowledged.
    """
    said = _gantry(kube, "produce", topic, "--stdin", "--json", *options, stdin="\n".join(bodies))
    summary: dict[str, Any] = json.loads(said)
    return summary


def consume(kube: Kube, topic: str) -> list[str]:
    """Everything in a topic, from its beginning, as bodies in the order of a sorted list."""
    quiet = f"--idle={QUIET_S:g}"
    said = _gantry(kube, "consume", topic, "--from=earliest", "--no-commit", quiet)
    return sorted(said.splitlines())


def read_on(kube: Kube, topic: str, group: str, *options: str) -> list[str]:
    """What a consumer group has not read yet, which it commits; as bodies."""
    return _gantry(kube, "consume", topic, f"--group={group}", *options).splitlines()


def addresses(kube: Kube, topic: str) -> set[str]:
    """Where clients are led for a topic."""
    found = json.loads(_gantry(kube, "topics", "show", topic, "--json"))
    return {queue["address"] for queue in found["queues"]}


def create_topic(kube: Kube, topic: str, *options: str) -> None:
    """Create a topic, with the default number of queues in each group that `options` leave."""
    _gantry(kube, "topics", "create", topic, *options)


def topics(kube: Kube) -> str:
    """The table of topics."""
    return _gantry(kube, "topics", "list")


def _gantry(kube: Kube, *args: str, stdin: str = "") -> str:
    pod = names.pod(names.controller_statefulset(CONTROLLERS), 0)
    server = f"{names.nameserver_service(CONTROLLERS)}:{names.NAMESERVER_PORT}"
    command = ("gantry", *args, f"--nameserver={server}")
    return kube.ctl("exec", "-i", pod, "--", *command, stdin=stdin, timeout_s=RUN_S)
