"""Broker groups with a tier on a cluster of processes, and stores that fail in their own ways."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from gantry_operator.names import BROKER_HTTP_PORT
from support.cli_cluster import POLL_S, CliCluster
from support.fault_proxy import FaultProxy, Strike, fault_proxy
from support.patience import PATIENCE_S

# What is done to a group or to its store shows soon, however long the store failed before.
BRISK = {"lingerMs": 200, "packBytes": 65536, "retryMaxMs": 500}
STRUCK = 100_000  # requests that meet a fault; more than any test sends
METHODS = ("GET", "HEAD", "PUT", "DELETE")
Json = dict[str, Any]


class TieredGroup:
    """One group, by what the API server and the command line say of it."""

    def __init__(self, cluster: CliCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self._spec: Json = {}

    def apply(self, tier: Json | None, *, replicas: int = 1) -> None:
        """Make the group as it is wished."""
        spec: Json = {"replicas": replicas, "storage": {"size": "1Gi"}}
        if tier is not None:
            spec["tier"] = BRISK | tier
        self._spec = spec
        self.cluster.gantry_applies(resource("BrokerGroup", self.name, spec=spec))

    def look_at(self, what: str) -> None:
        """Annotate the group: the operator looks at once at what changed, else twice a minute."""
        noted = {"name": self.name, "annotations": {"tests.gantry.dev/look-at": what}}
        text = resource("BrokerGroup", self.name, metadata=noted, spec=self._spec)
        self.cluster.gantry_applies(text)

    def read(self) -> Json:
        """The resource."""
        text = self.cluster.shown("local", "get", "brokergroups", self.name, "-o", "json")
        found: Json = json.loads(text)
        return found

    def condition(self, name: str = "TierHealthy") -> Json:
        """One condition; empty while there is none."""
        for one in (self.read().get("status") or {}).get("conditions") or ():
            if one["type"] == name:
                found: Json = one
                return found
        return {}

    def tier(self) -> Json:
        """`status.tier`; empty while there is none."""
        found: Json = (self.read().get("status") or {}).get("tier") or {}
        return found

    def until(self, check: Callable[[], object], what: str) -> None:
        """Waits until something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if check():
                return
            time.sleep(POLL_S)
        pytest.fail(f"{self.name} never got there: {what}; {self.read().get('status')}")

    def until_health(self, status: str, reason: str) -> Json:
        """The condition once it is so."""
        self.until(
            lambda: (
                (self.condition().get("status"), self.condition().get("reason")) == (status, reason)
            ),
            f"TierHealthy={status} {reason}",
        )
        return self.condition()

    def until_available(self) -> None:
        """Waits for a master, with the newest wish."""
        self.until(
            lambda: all(self.condition(n).get("status") == s for n, s in SETTLED), "it settles"
        )

    def serves(self, count: int = 5, body: str = "a message") -> bool:
        """Whether the group acknowledges messages of a topic of its own."""
        topic = f"of-{self.name}"
        self.cluster.shown("topics", "create", topic, "--group", self.name)
        args = ("produce", topic, "--count", str(count), "--body", body, "--patience", "30")
        acknowledged: int = json.loads(self.cluster.gantry(*args, "--json"))["acknowledged"]
        return acknowledged == count

    def broker_status(self, ordinal: int = 0) -> Json:
        """What a replica says of itself."""
        pod = f"{self.name}-broker-{ordinal}"
        found = json.loads(self.cluster.shown("local", "get", "pods", pod, "-o", "json"))
        url = f"http://{found['status']['podIP']}:{BROKER_HTTP_PORT}/status"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            status: Json = json.load(answer)
        return status

    def committed(self, ordinal: int = 0) -> int:
        """How far the tier is, by the word of who uploads; the status tells it twice a minute."""
        offset: int = self.broker_status(ordinal)["tier"]["committedOffset"] or 0
        return offset

    def events(self, reason: str) -> list[Json]:
        """Events about the group for this reason."""
        items = json.loads(self.cluster.shown("local", "get", "events", "-o", "json"))["items"]
        return [
            one
            for one in items
            if one["involvedObject"]["name"] == self.name and one["reason"] == reason
        ]

    def log(self) -> str:
        """Of the first replica."""
        return self.cluster.shown("local", "logs", f"{self.name}-broker-0")


SETTLED = (("Accepted", "True"), ("Available", "True"), ("Progressing", "False"))


def resource(kind: str, name: str, **parts: Any) -> str:
    """A manifest."""
    version = "v1" if kind == "Secret" else "mq.gantry.dev/v1alpha1"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}} | parts
    text: str = yaml.safe_dump(body)
    return text


@contextmanager
def failing_store(strike: Strike, upstream: int = 1) -> Iterator[FaultProxy]:
    """An S3 service that does this to every request, in a thread of its own."""
    ready = threading.Event()
    made: list[FaultProxy] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # what hangs at the end is cancelled on purpose
    over = asyncio.Event()

    async def serve() -> None:
        async with fault_proxy(upstream) as proxy:
            for method in METHODS:
                proxy.strike(method, *[strike] * STRUCK)
            made.append(proxy)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield made[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
