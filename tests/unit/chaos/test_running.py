"""The parts around a run that decide: is the group whole, what is expected, who would be struck."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from gantry_chaos.core.timeline import timeline
from gantry_chaos.errors import ManifestError, SelectionError
from gantry_chaos.history.lines import Request
from gantry_chaos.history.observations import Observation, OffsetSeen, RoleSeen
from gantry_chaos.history.records import Batch, Records
from gantry_chaos.manifests.reader import parse
from gantry_chaos.manifests.selection import Pod
from gantry_cli.target import Admin
from gantry_lab.chaos.client_pod import client_pod
from gantry_lab.chaos.local_stage import choose
from gantry_lab.chaos.planning import steps
from gantry_lab.chaos.scenario import NotSettledError, expectation, fetch, named, unsettled
from gantry_lab.chaos.tiering import newest, question
from gantry_lab.soak.views import SoakState, WatchedGroup, WatchedQuorum
from gantry_lab.soak.witness import Witness, role_of
from gantry_protocol.admin import MemberView
from gantry_protocol.errors import ConfigError, GantryError

GROUP = WatchedGroup("orders", 1, "uid-1", 4, [1, 2, 3], [], settled=True, stale_s=0.1)
STATE = SoakState(
    now_s=1.0,
    sending=True,
    started=True,
    acknowledged=1,
    consumed=1,
    outstanding=0,
    last_ack_s=1.0,
    flowing=True,
    commits_flowing=True,
    illegal_offsets=0,
    last_trouble="",
    error=None,
    group=GROUP,
    quorum=WatchedQuorum("gantry-controller-0", whole=True),
    masterships=[],
    conflicts=[],
)
replace = msgspec.structs.replace


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (STATE, ""),
        (None, "the load does not answer"),
        (replace(STATE, error="it broke"), "the load broke: it broke"),
        (replace(STATE, flowing=False, last_trouble="No master."), "nothing is ackn.*No master"),
        (replace(STATE, group=None), "do not tell of the group"),
        (replace(STATE, group=replace(GROUP, stale_s=3.0)), "do not tell of the group"),
        (replace(STATE, group=replace(GROUP, settled=False)), "not every replica"),
        (replace(STATE, quorum=WatchedQuorum("x", whole=False)), "does not hear every other one"),
    ],
)
def test_nothing_is_struck_before_the_group_is_whole(state: SoakState | None, said: str) -> None:
    found = unsettled(state)
    assert bool(found) == bool(said)
    assert re.search(said, found)


def manifest(annotations: str = "{}") -> str:
    return f"""
apiVersion: chaos-mesh.org/v1alpha1
kind: Workflow
metadata: {{name: w, annotations: {annotations}}}
spec:
  entry: all
  templates:
    - {{name: all, templateType: Serial, children: [wait, kill, slow]}}
    - {{name: wait, templateType: Suspend, deadline: 5s}}
    - name: kill
      templateType: PodChaos
      deadline: 10s
      podChaos:
        {{action: container-kill, mode: one, containerNames: [broker], selector: {{}}}}
    - name: slow
      templateType: NetworkChaos
      deadline: 20s
      networkChaos:
        action: delay
        mode: all
        selector: {{pods: {{shop: [a]}}}}
        target: {{mode: all, selector: {{}}}}
        delay: {{latency: 100ms, jitter: 20ms}}
"""


def test_what_a_scenario_is_written_to_show() -> None:
    said = {
        text: expectation(parse(manifest(text), "x.yaml"))
        for text in (
            "{}",
            "{chaos.gantry.dev/mastership: moves}",
            "{chaos.gantry.dev/mastership: stays}",
        )
    }
    assert list(said.values()) == [None, "moves", "stays"]
    with pytest.raises(ManifestError, match="'maybe' is neither moves nor stays"):
        expectation(parse(manifest("{chaos.gantry.dev/mastership: maybe}"), "x.yaml"))


PODS = [Pod("shop", "a", "1"), Pod("shop", "b", "2"), Pod("shop", "c", "3")]


def test_a_plan_says_who_when_and_what() -> None:
    line = timeline(parse(manifest(), "x.yaml"), namespace="shop")
    kill, slow = steps(line, PODS, None)
    assert kill.row() == (
        "5 s",
        "10 s",
        "kill",
        "container-kill broker",
        "1 of shop/a, shop/b, shop/c",
        "-",
    )
    assert slow.row()[3:5] == ("delay 100 ms ± 20 ms, to", "shop/a")
    assert slow.towards == ["shop/a", "shop/b", "shop/c"]
    decided = {steps(line, PODS, seed)[0].whom[0] for seed in range(20)}
    assert decided == {"shop/a", "shop/b", "shop/c"}
    assert steps(line, PODS, 7) == steps(line, PODS, 7)
    with pytest.raises(SelectionError, match="matches none of 1 pods"):
        steps(line, [Pod("other", "a", "1")], None)


class Fetched:
    """A load whose history is `records`."""

    def __init__(self, records: Records, most: int) -> None:
        self._records, self._most = records, most

    async def batch(self, after: int) -> Batch:
        return self._records.batch(after, most=self._most)


def test_a_history_is_fetched_in_parts_and_whole() -> None:
    records = Records(keep=10)
    for number in range(10):
        records.line(Request("p", "enqueue", str(number), None, number))
    found, seen = asyncio.run(fetch(Fetched(records, 3), full=3))
    assert [one.value for one in found if isinstance(one, Request)] == list("0123456789")
    assert seen == []
    records = Records(keep=10)
    for number in range(21):
        records.line(Request("p", "enqueue", str(number), None, number))
    with pytest.raises(NotSettledError, match="11 records of the history were dropped"):
        asyncio.run(fetch(Fetched(records, 3), full=3))


def groups(*found: str) -> Sequence[dict[str, Any]]:
    return [{"metadata": {"name": name}} for name in found]


def test_which_group_is_meant() -> None:
    assert choose(groups("a"), None)["metadata"]["name"] == "a"
    assert choose(groups("a", "b"), "b")["metadata"]["name"] == "b"
    with pytest.raises(ConfigError, match="2 BrokerGroups here; say which with --group: a, b"):
        choose(groups("a", "b"), None)
    with pytest.raises(ConfigError, match="no BrokerGroup 'c'"):
        choose(groups("a"), "c")
    with pytest.raises(ConfigError, match="0 BrokerGroups"):
        choose([], None)


def test_the_load_runs_outside_the_group_and_under_the_restricted_profile() -> None:
    tier = {"url": "s3://b/p", "credentialsSecret": {"name": "keys"}}
    pod = client_pod(
        "chaos-1",
        namespace="gantry",
        topic="t",
        image="gantry:dev",
        controllers="gantry",
        members=3,
        group="orders",
        tier=tier,
    )
    (container,) = pod["spec"]["containers"]
    command = " ".join(container["command"])
    assert "soak t --nameserver gantry-nameserver.gantry.svc:9876" in command
    assert "--record" in command
    assert command.count("gantry-controller-2.gantry-controller.gantry.svc:9880") == 1
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {one["valueFrom"]["secretKeyRef"]["name"] for one in container["env"]} == {"keys"}
    assert "app.kubernetes.io/component" not in pod["metadata"]["labels"], "no scenario strikes it"


def test_brokers_are_named_by_their_pods() -> None:
    unknown = MemberView(broker_id=1, address="10.0.0.1:10911", alive=True, in_sync=True)
    known = unknown.model_copy(update={"pod_uid": "uid-0"})
    witness = Witness(Admin((), "token"), "orders", Records())
    assert [witness._broker(one) for one in (unknown, known, unknown)] == [None, "uid-0", "uid-0"]
    seen: list[Observation] = [RoleSeen(1, "g", "uid-0", "master", 4), OffsetSeen(1, "g", "x", 1)]
    assert named(seen, {"uid-0": "b-0"}) == [RoleSeen(1, "g", "b-0", "master", 4), seen[1]]
    assert named(seen, {}) == seen
    assert role_of({"role": "master", "epoch": 4}) == ("master", 4)
    assert role_of({"role": "replica", "epoch": 4}) == ("replica", 0)
    assert role_of({}) == ("gone", 0)


def test_the_truth_about_a_tier_is_the_newest_masters() -> None:
    document = {
        "role": "master",
        "epoch": 5,
        "cluster": "c",
        "confirmOffset": 9,
        "lineage": [[5, 1]],
    }
    old = document | {"epoch": 4, "confirmOffset": 99}
    seen = [RoleSeen(1, "orders", "b-0", "master", 4), RoleSeen(2, "orders", "b-1", "replica")]
    found = question({"url": "s3://b"}, "uid", ["10.0.0.1"], seen)
    assert (found.brokers, found.masters) == (["http://10.0.0.1:10913/status"], {4: "b-0"})
    assert newest([old, document, {"role": "replica"}]) is document
    with pytest.raises(GantryError, match="No broker calls itself master"):
        newest([{"role": "replica"}])


class Endless(Fetched):
    """A load whose readers go on while its history is fetched."""

    async def batch(self, after: int) -> Batch:
        self._records.line(Request("reader", "read", None, "orders", after))
        return await super().batch(after)


def test_a_history_that_still_grows_is_fetched_and_done() -> None:
    found, _ = asyncio.run(asyncio.wait_for(fetch(Endless(Records(keep=10), 3), full=3), 5))
    assert len(found) == 1
