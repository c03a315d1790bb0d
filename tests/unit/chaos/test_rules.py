"""Packet filter rules as data: where they stand, what they match, and how exactly they go."""

from __future__ import annotations

import re
from random import Random

import pytest
from gantry_chaos.core import rules
from gantry_chaos.core.actions import Absent, Command, DelayDaemon
from gantry_chaos.core.rules import Endpoint
from gantry_chaos.core.timeline import Fault
from gantry_chaos.errors import InjectionError, SelectionError
from gantry_chaos.kinds.chaos import Site
from gantry_chaos.kinds.network import NetworkChaos
from gantry_chaos.manifests.selection import Pod

M = Pod("shop", "master", "um", ip="10.0.0.1")
A = Pod("shop", "a", "ua", ip="10.0.0.2")
B = Pod("shop", "b", "ub", ip="10.0.0.3")
SPACES = {"um": "net:[1]", "ua": "net:[2]", "ub": "net:[3]"}
TAG = rules.tag("run", "x")


def fault(**fields: object) -> Fault:
    pods = {"mode": "all", "selector": {}}
    spec = NetworkChaos.model_validate({**pods, "target": pods, **fields})
    return Fault("x", "f.yaml: spec", "shop", spec, 0.0, 1.0)


def sets(sources: list[Pod], targets: list[Pod], **fields: object) -> list[rules.RuleSet]:
    one = fault(**fields)
    assert isinstance(one.spec, NetworkChaos)
    return one.spec.rule_sets(site(sources, targets), SPACES)


def site(sources: list[Pod], targets: list[Pod]) -> Site:
    return Site(
        "x", sources, targets, lambda pod: SPACES[pod.uid], lambda _: None, "run", Random(1)
    )


def drawn(found: list[rules.RuleSet]) -> dict[str, list[str]]:
    """By namespace: the hooks, then one line per rule."""
    return {
        one.netns: [
            f"{one.table} {'+'.join(one.hooks)}",
            *(" ".join((*rule.match, *rule.target)) for rule in one.rules),
        ]
        for one in found
    }


def test_a_partition_drops_at_both_ends() -> None:
    assert drawn(sets([M], [A, B], action="partition", direction="to")) == {
        "net:[1]": ["filter OUTPUT", "-d 10.0.0.2/32 -j DROP", "-d 10.0.0.3/32 -j DROP"],
        "net:[2]": ["filter INPUT", "-s 10.0.0.1/32 -j DROP"],
        "net:[3]": ["filter INPUT", "-s 10.0.0.1/32 -j DROP"],
    }
    assert drawn(sets([M], [A], action="partition", direction="from")) == {
        "net:[1]": ["filter INPUT", "-s 10.0.0.2/32 -j DROP"],
        "net:[2]": ["filter OUTPUT", "-d 10.0.0.1/32 -j DROP"],
    }
    assert drawn(sets([M], [A], action="partition", direction="both")) == {
        "net:[1]": ["filter INPUT+OUTPUT", "-s 10.0.0.2/32 -j DROP", "-d 10.0.0.2/32 -j DROP"],
        "net:[2]": ["filter INPUT+OUTPUT", "-s 10.0.0.1/32 -j DROP", "-d 10.0.0.1/32 -j DROP"],
    }


def test_an_external_target_is_cut_off_at_the_pod() -> None:
    found = sets(
        [M], [], action="partition", target=None, direction="both", externalTargets=["192.0.2.0/24"]
    )
    assert drawn(found) == {
        "net:[1]": ["filter INPUT+OUTPUT", "-s 192.0.2.0/24 -j DROP", "-d 192.0.2.0/24 -j DROP"]
    }


def test_nobody_is_cut_off_from_itself() -> None:
    found = drawn(sets([M, A], [M, A], action="partition", direction="to"))
    assert found["net:[1]"][1:] == ["-s 10.0.0.2/32 -j DROP", "-d 10.0.0.2/32 -j DROP"]
    with pytest.raises(SelectionError, match="the same single pod shop/master"):
        sets([M], [M], action="partition")


def test_loss_counts_all_and_drops_a_share_where_packets_arrive() -> None:
    assert drawn(sets([M], [A], action="loss", loss={"loss": "30"})) == {
        "net:[2]": [
            "filter INPUT",
            "-s 10.0.0.1/32",
            "-s 10.0.0.1/32 -m statistic --mode random --probability 0.300000 -j DROP",
        ]
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"action": "delay", "delay": {"latency": "100ms", "jitter": "20ms"}},
        {"action": "loss", "loss": {"loss": "30", "correlation": "25"}},
    ],
    ids=["delay", "correlated loss"],
)
def test_held_packets_pass_when_nobody_listens(fields: dict[str, object]) -> None:
    queue = rules.queue_number(TAG)
    found = sets([M], [A, B], direction="from", **fields)
    line = f"-s 10.0.0.{{}}/32 -j NFQUEUE --queue-num {queue} --queue-bypass"
    assert drawn(found) == {"net:[1]": ["mangle PREROUTING", line.format(2), line.format(3)]}
    one = fault(direction="from", **fields)
    assert isinstance(one.spec, NetworkChaos)
    injection, _ = one.spec.prepare(site([M], [A, B]))
    assert isinstance(injection.actions[0], DelayDaemon), "listens before packets come"
    assert [type(action) for action in injection.actions[1:]] == [Command] * 4


def test_the_switch_is_last_and_the_undo_mirrors_it() -> None:
    (one,) = sets([M], [A], action="loss", loss={"loss": "30"})
    words = [" ".join(command.argv) for command in one.inject()]
    begin = "iptables -w 5 -t filter"
    jump = f"-m comment --comment {TAG} -j {TAG}"
    assert words[0] == f"{begin} -N {TAG}"
    assert words[-1] == f"{begin} -I INPUT 1 {jump}"
    undo = one.undo()
    assert [" ".join(part.argv) for part in undo] == [
        f"{begin} -D INPUT {jump}",
        f"{begin} -F {TAG}",
        f"{begin} -X {TAG}",
        "iptables-save -t filter",
    ]
    assert all(part.may_fail for part in undo if isinstance(part, Command))
    assert undo[-1] == Absent(("iptables-save", "-t", "filter"), TAG, "net:[2]")
    assert {part.netns for part in undo} == {"net:[2]"}


def test_tags_are_short_and_of_one_fault() -> None:
    assert re.fullmatch(r"CHAOS-[0-9A-F]{8}", TAG)
    assert len({rules.tag(run, name) for run in "ab" for name in "xy"}) == 4
    assert rules.queue_number(TAG) in range(1000, 65536)


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (Pod("shop", "h", "ua", ip="10.0.0.9", host_network=True), "uses its node's network"),
        (Pod("shop", "h", "ua"), "has no address"),
        (Pod("shop", "h", "ua", ip="fd00::1"), "has the IPv6 address fd00::1"),
        (Pod("shop", "h", "nowhere", ip="10.0.0.9"), "runs no process"),
    ],
)
def test_pods_that_cannot_be_struck_are_refused(pod: Pod, reason: str) -> None:
    with pytest.raises(InjectionError, match=reason):
        sets([M], [pod], action="partition")


def test_flows_are_pairs_of_different_addresses() -> None:
    a, b = Endpoint("1.0.0.1/32", "n1"), Endpoint("1.0.0.2/32", "n2")
    assert rules.flows([a], [b], "both") == [(a, b), (b, a)]
    assert rules.flows([a, b], [a, b], "to") == [(a, b), (b, a)]
    assert rules.flows([a], [a], "both") == []
