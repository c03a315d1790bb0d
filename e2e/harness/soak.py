"""The load in pods: `gantry_lab soak` outside the group, asked through the node that it runs on.

It counts by itself and is only read from here, so nothing that happens to the API server or to the
harness changes what is measured. Its times are CLOCK_MONOTONIC, which every pod of one machine
shares with this process.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from gantry_lab.soak.pod import HTTP_PORT, soak_pod
from harness.kube import Kube, Object
from harness.node import on_node
from harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

LABELS = {"app": "gantry-soak"}
LANES = 2
CONTROLLERS = 3
START_PATIENCE_S = 60.0
CALL_S = 5.0


class Gap(NamedTuple):
    """The longest time between two successive acknowledgements, seconds on the monotonic clock."""

    start_s: float
    end_s: float

    @property
    def ms(self) -> float:
        """Its length."""
        return (self.end_s - self.start_s) * 1000


class SoakError(Exception):
    """The load did not answer, or something in it broke."""


class Soak:
    """One running soak pod."""

    def __init__(self, name: str, node: str, address: str) -> None:
        self.name = name
        self.node = node
        self._address = address

    def state(self) -> dict[str, Any]:
        """Everything it knows at the moment.

        Raises:
            SoakError: a lane, the consumer or the observer ended with an error.
        """
        state = self._call("GET", "/v1/state")
        if state["error"]:
            raise SoakError(f"{self.name}: {state['error']}")
        return state

    def gap(self, since_s: float, stream: str = "writes") -> Gap | None:
        """The longest gap that ends after `since_s`; None while nothing came after it."""
        found = self._call("GET", "/v1/gap", sinceS=since_s, stream=stream)["gap"]
        return None if found is None else Gap(found["startS"], found["endS"])

    def pause(self, patience_s: float) -> dict[str, Any]:
        """Stop sending, wait until everything acknowledged is consumed; the account."""
        return self._call("POST", "/v1/pause", patience_s + CALL_S, patienceS=patience_s)

    def resume(self) -> None:
        """Send again."""
        self._call("POST", "/v1/resume")

    def _call(
        self, method: str, path: str, timeout_s: float = CALL_S, **query: object
    ) -> dict[str, Any]:
        url = f"http://{self._address}:{HTTP_PORT}{path}?{urlencode(query)}"
        curl = ("curl", "-sS", "--fail-with-body", "-m", str(timeout_s), "-X", method, url)
        answer: dict[str, Any] = json.loads(on_node(self.node, *curl, timeout_s=timeout_s + CALL_S))
        return answer


def start(kube: Kube, name: str, *, image: str, controllers: str, group: str, node: str) -> Soak:
    """Start a soak pod on `node` and wait until its messages are acknowledged.

    Args:
        kube: the namespace of the group; the pod lives there too, for the admin token's Secret.
        name: of the pod and of its topic.
        image: the lab's.
        controllers: name of the ControllerGroup.
        group: the BrokerGroup that is watched.
        node: where the load runs.
    """
    kube.delete("pod", name, "--grace-period=0", "--force", wait=True)
    kube.apply(
        soak_pod(
            name,
            namespace=kube.namespace,
            topic=name,
            image=image,
            controllers=controllers,
            members=CONTROLLERS,
            group=group,
            labels=LABELS,
            options=("--lanes", str(LANES)),
            node=node,
        )
    )
    address = wait_until(
        f"pod {name} runs", START_PATIENCE_S, lambda: _address(kube.get("pod", name))
    )
    soak = Soak(name, node, address)
    wait_until(f"{name} gets acknowledgements", START_PATIENCE_S, lambda: _flows(soak))
    return soak


def start_on(
    nodes: Sequence[str], kube: Kube, *, image: str, controllers: str, group: str
) -> list[Soak]:
    """A soak pod on each of these nodes, all started at once; see `start`."""

    def begin(node: str) -> Soak:
        name = f"soak-{node}"
        return start(kube, name, image=image, controllers=controllers, group=group, node=node)

    with ThreadPoolExecutor(len(nodes)) as all_at_once:
        return list(all_at_once.map(begin, nodes))


def _address(pod: Object | None) -> str | None:
    status = (pod or {}).get("status", {})
    if status.get("phase") in ("Failed", "Succeeded"):
        raise SoakError(f"the soak pod ended: {status}")
    running = status.get("phase") == "Running"
    return str(status["podIP"]) if running and status.get("podIP") else None


def _flows(soak: Soak) -> bool:
    try:
        return bool(soak.state()["flowing"])
    except Exception:  # noqa: BLE001 -- not listening yet, or no topic yet: asked again
        return False
