"""When faults begin and end: nesting, deadlines, and what never begins or never ends."""

from __future__ import annotations

import pytest
from gantry_chaos.core.timeline import Timeline, timeline
from gantry_chaos.errors import ManifestError, SelectionError
from gantry_chaos.manifests.reader import parse
from gantry_chaos.manifests.selection import Pod
from gantry_chaos.plan.targets import preflight

CHAOS = {
    "kill": "podChaos: {action: pod-kill, mode: one, selector: {}}",
    "cut": "networkChaos: {action: partition, mode: all, selector: {}, "
    "target: {mode: all, selector: {}}}",
}


def workflow(*templates: str) -> Timeline:
    """Each template: `name Type deadline child child` with `-` for no deadline."""
    lines = [
        "apiVersion: chaos-mesh.org/v1alpha1\nkind: Workflow\nmetadata: {name: w, namespace: shop}",
        "spec:\n  entry: all\n  templates:",
    ]
    for template in templates:
        name, kind, deadline, *children = template.split()
        lines.append(f"  - name: {name}\n    templateType: {kind}")
        if deadline != "-":
            lines.append(f"    deadline: {deadline}")
        if children:
            lines.append(f"    children: [{', '.join(children)}]")
        if name in CHAOS:
            lines.append(f"    {CHAOS[name]}")
    return timeline(parse("\n".join(lines), "w.yaml"))


def shape(found: Timeline) -> list[tuple[str, float, float]]:
    return [(fault.id, fault.start_s, fault.end_s) for fault in found.faults]


def test_serial_goes_one_after_the_other() -> None:
    found = workflow(
        "all Serial - rest kill rest cut",
        "rest Suspend 10s",
        "kill PodChaos 5s",
        "cut NetworkChaos 20s",
    )
    assert shape(found) == [("kill", 10, 15), ("cut", 25, 45)]
    assert found.end_s == 45
    assert {fault.namespace for fault in found.faults} == {"shop"}


def test_parallel_lasts_as_long_as_its_longest() -> None:
    found = workflow(
        "all Serial - both kill",
        "both Parallel - cut rest",
        "cut NetworkChaos 5s",
        "rest Suspend 8s",
        "kill PodChaos 1s",
    )
    assert shape(found) == [("cut", 0, 5), ("kill", 8, 9)]


def test_a_deadline_around_cuts_a_fault_short() -> None:
    found = workflow("all Parallel 3s cut kill", "cut NetworkChaos 5s", "kill PodChaos -")
    assert shape(found) == [("cut", 0, 3), ("kill", 0, 3)]


def test_a_template_may_be_used_again() -> None:
    found = workflow("all Serial - kill kill", "kill PodChaos 2s")
    assert shape(found) == [("kill", 0, 2), ("kill-2", 2, 4)]


def test_what_never_ends_is_refused() -> None:
    with pytest.raises(
        ManifestError, match=r"w.yaml, document 1: .*\[1\] \(cut\): it has no deadline"
    ):
        workflow("all Serial - cut", "cut NetworkChaos -")


def test_what_never_begins_is_refused() -> None:
    with pytest.raises(ManifestError, match=r"\[2\] \(kill\): the deadline around it is over"):
        workflow("all Serial 10s rest kill", "rest Suspend 10s", "kill PodChaos 1s")


def test_faults_are_proved_then_healed_then_injected() -> None:
    found = workflow("all Serial - cut kill", "cut NetworkChaos 5s", "kill PodChaos 1s")
    assert [(step.at_s, step.kind, step.fault.id) for step in found.steps()] == [
        (0, "inject", "cut"),
        (2.5, "prove", "cut"),
        (5, "heal", "cut"),
        (5, "inject", "kill"),
        (6, "prove", "kill"),
        (6, "heal", "kill"),
    ]
    (long,) = workflow("all Serial - cut", "cut NetworkChaos 30s").faults
    assert [step.at_s for step in Timeline((long,), 30).steps()] == [0, 27, 30]


def test_a_fault_that_multiplies_is_bounded() -> None:
    nested = [f"n{n} Serial - n{n + 1} n{n + 1}" for n in range(10)]
    with pytest.raises(ManifestError, match="more than 500 faults"):
        workflow("all Serial - n0", *nested, "n10 Serial - kill", "kill PodChaos 1s")


def test_a_fault_knows_where_it_was_written() -> None:
    found = workflow("all Serial - kill cut", "kill PodChaos 1s", "cut NetworkChaos 1s")
    assert [fault.where for fault in found.faults] == [
        "w.yaml, document 1: spec.templates[1].podChaos",
        "w.yaml, document 1: spec.templates[2].networkChaos",
    ]


def test_a_selector_that_matches_nobody_is_found_before_the_run() -> None:
    found = workflow("all Serial - kill cut", "kill PodChaos 1s", "cut NetworkChaos 1s")
    with pytest.raises(SelectionError) as caught:
        preflight(found, [Pod("other", "a", "u")])
    assert str(caught.value) == (
        "w.yaml, document 1: spec.templates[1].podChaos.selector matches none of 1 pods (other/a): "
        "check namespaces and labels."
    )
    preflight(found, [Pod("shop", "a", "u")])


def test_objects_of_a_file_begin_together() -> None:
    text = """
apiVersion: chaos-mesh.org/v1alpha1
kind: NetworkChaos
metadata: {name: a}
spec: {action: loss, mode: all, selector: {}, target: {mode: all, selector: {}}, loss: {loss: "5"},
  duration: 10s}
---
apiVersion: chaos-mesh.org/v1alpha1
kind: PodChaos
metadata: {name: a, namespace: x}
spec: {action: pod-kill, mode: all, selector: {}}
"""
    found = timeline(parse(text, "x"), namespace="gantry")
    assert shape(found) == [("a", 0, 10), ("a-2", 0, 0)]
    assert [fault.namespace for fault in found.faults] == ["gantry", "x"]
    assert [fault.strikes_once for fault in found.faults] == [False, True]
