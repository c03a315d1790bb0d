"""The scenarios that ship: they are read, they end in time, and they strike whom they mean."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from gantry_chaos.core.actions import Command
from gantry_chaos.core.timeline import Fault, Timeline, timeline
from gantry_chaos.errors import InjectionError
from gantry_chaos.inject import objects
from gantry_chaos.kinds.chaos import Site
from gantry_chaos.kinds.network import NetworkChaos
from gantry_chaos.kinds.pod import PodChaos
from gantry_chaos.manifests.reader import read
from gantry_chaos.manifests.selection import Pod, with_quorum_labels
from gantry_chaos.plan.targets import preflight, sources
from gantry_chaos.plan.targets import targets as others
from gantry_operator import names

SCENARIOS = sorted((Path(__file__).resolve().parents[3] / "e2e" / "scenarios").glob("*.yaml"))
LONGEST_S = 120.0


def described(component: str, instance: str, number: int, **labels: str) -> dict[str, object]:
    """A pod as the API server of a cluster with Gantry describes it."""
    name = f"{instance}-{component}-{number}"
    return {
        "metadata": {
            "namespace": "gantry",
            "name": name,
            "uid": f"uid-{name}",
            "labels": names.labels(component, instance) | labels,
        },
        "spec": {"nodeName": f"worker-{number}"},
        "status": {
            "phase": "Running",
            "podIP": f"10.0.{len(component)}.{number + 1}",
            "containerStatuses": [
                {
                    "name": component,
                    "containerID": f"containerd://c-{name}",
                    "state": {"running": {}},
                },
                {"name": "done", "containerID": "containerd://x", "state": {"terminated": {}}},
            ],
        },
    }


def cluster() -> list[Pod]:
    roles = [names.ROLE_REPLICA, names.ROLE_MASTER, names.ROLE_REPLICA]
    found = [
        *(
            described(names.BROKER, "orders", n, **{names.LABEL_ROLE: role})
            for n, role in enumerate(roles)
        ),
        *(described(names.CONTROLLER, "gantry", n) for n in range(3)),
    ]
    quorum = {f"gantry-controller-{n}": "leader" if n == 2 else "follower" for n in range(3)}
    client = Pod("gantry", "client", "uid-client", ip="10.0.9.9", labels={"app": "gantry-soak"})
    return [*with_quorum_labels(objects.pods(found), quorum), client]


def planned(path: Path) -> Timeline:
    return timeline(read(path), namespace="gantry")


def struck(fault: Fault) -> tuple[list[str], list[str]]:
    """Names of who is chosen, and of the targets of a network fault."""
    random = Random(1)
    chosen, targets = sources(fault, cluster(), random), others(fault, cluster(), random)
    inside = lambda pod: f"net:[{pod.uid}]"  # noqa: E731
    site = Site(fault.id, chosen, targets, inside, lambda _: None, "run", random)
    actions = fault.spec.prepare(site).injection.actions
    assert actions
    struck = [action.netns for action in actions if isinstance(action, Command)]
    assert not any("uid-client" in one for one in struck), "clients stay connected"
    return [pod.name for pod in chosen], [pod.name for pod in targets]


def test_all_six_are_there() -> None:
    assert [path.stem for path in SCENARIOS] == [
        "delay-100ms",
        "kill-controller-leader",
        "kill-during-upload",
        "kill-master",
        "loss-30-percent",
        "partition-master",
    ]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_ends_in_time_and_leaves_time_before_and_between(path: Path) -> None:
    found = planned(path)
    assert 0 < found.end_s <= LONGEST_S
    assert found.faults[0].start_s >= 5
    for earlier, later in zip(found.faults, found.faults[1:], strict=False):
        assert later.start_s - earlier.end_s >= 10
    assert found.end_s - found.faults[-1].end_s >= 10


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_is_named_like_its_file_and_can_be_injected(path: Path) -> None:
    assert [one.metadata.name for one in read(path)] == [path.stem]
    preflight(planned(path), cluster())
    for fault in planned(path).faults:
        struck(fault)


BROKERS = [f"orders-broker-{n}" for n in range(3)]
CONTROLLERS = [f"gantry-controller-{n}" for n in range(3)]


@pytest.mark.parametrize(
    ("stem", "chosen", "targets"),
    [
        ("kill-master", ["orders-broker-1"], []),
        ("kill-during-upload", ["orders-broker-1"], []),
        ("kill-controller-leader", ["gantry-controller-2"], []),
        ("partition-master", ["orders-broker-1"], [*CONTROLLERS, *BROKERS]),
        ("loss-30-percent", BROKERS, [*CONTROLLERS, *BROKERS]),
        ("delay-100ms", BROKERS, [*CONTROLLERS, *BROKERS]),
    ],
)
def test_who_is_struck(stem: str, chosen: list[str], targets: list[str]) -> None:
    (path,) = [path for path in SCENARIOS if path.stem == stem]
    for fault in planned(path).faults:
        assert struck(fault) == (chosen, targets)


def test_the_partition_goes_each_way_once() -> None:
    (path,) = [path for path in SCENARIOS if path.stem == "partition-master"]
    specs = [fault.spec for fault in planned(path).faults]
    ways = [spec.direction for spec in specs if isinstance(spec, NetworkChaos)]
    assert ways == ["both", "to", "from"]


def test_the_master_dies_in_both_ways() -> None:
    (path,) = [path for path in SCENARIOS if path.stem == "kill-master"]
    specs = [fault.spec for fault in planned(path).faults]
    ways = [spec.action for spec in specs if isinstance(spec, PodChaos)]
    assert ways == ["container-kill", "pod-kill"]


def test_pods_are_read_as_the_api_server_describes_them() -> None:
    one = objects.pod(described(names.BROKER, "orders", 0))
    assert [(each.name, each.id) for each in one.containers] == [("broker", "c-orders-broker-0")]
    assert (one.id, one.ip, one.node) == ("gantry/orders-broker-0", "10.0.6.1", "worker-0")
    assert objects.port(one) == names.BROKER_REMOTING_PORT
    controller = objects.pod(described(names.CONTROLLER, "gantry", 0))
    assert objects.port(controller) == names.CONTROLLER_REMOTING_PORT
    assert objects.port(Pod("a", "b", "c")) is None
    pending = {"metadata": {"namespace": "a", "name": "b", "uid": "c"}}
    assert objects.pod(pending).containers == ()
    with pytest.raises(InjectionError, match="a pod without 'metadata'"):
        objects.pod({})
    with pytest.raises(InjectionError, match="a pod without 'uid'"):
        objects.pod({"metadata": {"namespace": "a", "name": "b"}})
