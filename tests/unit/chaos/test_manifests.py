"""Reading Chaos Mesh manifests: what is accepted, and the sentence for everything that is not."""

from __future__ import annotations

import re
from pathlib import Path

import gantry_chaos
import gantry_lab.chaos
import pytest
from gantry_chaos.errors import ManifestError
from gantry_chaos.kinds import KINDS
from gantry_chaos.kinds.chaos import Chaos
from gantry_chaos.kinds.network import NetworkChaos
from gantry_chaos.kinds.pod import PodChaos
from gantry_chaos.manifests.reader import parse, read
from gantry_chaos.manifests.units import seconds, share
from gantry_chaos.manifests.workflow import Workflow

ROOT = Path(__file__).resolve().parents[3]

POD_KILL = """
apiVersion: chaos-mesh.org/v1alpha1
kind: PodChaos
metadata:
  name: kill-one
  namespace: shop
spec:
  action: pod-kill
  mode: one
  duration: "30s"
  selector:
    labelSelectors:
      "app.kubernetes.io/component": "store"
"""
CONTAINER_KILL = """
apiVersion: chaos-mesh.org/v1alpha1
kind: PodChaos
metadata: {name: kill-container}
spec:
  action: container-kill
  mode: fixed-percent
  value: "50"
  containerNames: [main]
  selector:
    namespaces: [shop]
    expressionSelectors:
      - {key: tier, operator: In, values: [cache, store]}
      - {key: canary, operator: DoesNotExist}
"""
DELAY = """
apiVersion: chaos-mesh.org/v1alpha1
kind: NetworkChaos
metadata: {name: slow}
spec:
  action: delay
  mode: one
  selector: {labelSelectors: {app: store}}
  delay: {latency: "90ms", correlation: "25", jitter: "90ms"}
  direction: to
  target:
    mode: one
    selector: {labelSelectors: {app: store}}
  duration: "10s"
"""
PARTITION = """
apiVersion: chaos-mesh.org/v1alpha1
kind: NetworkChaos
metadata: {name: cut}
spec:
  action: partition
  mode: all
  selector: {pods: {shop: [store-0]}}
  direction: both
  externalTargets: ["192.0.2.10", "10.1.0.0/16"]
  duration: 30s
"""
WORKFLOW = """
apiVersion: chaos-mesh.org/v1alpha1
kind: Workflow
metadata: {name: in-order}
spec:
  entry: the-entry
  templates:
    - name: the-entry
      templateType: Serial
      deadline: 240s
      children: [quiet, both]
    - name: quiet
      templateType: Suspend
      deadline: 10s
    - name: both
      templateType: Parallel
      children: [slow, kill]
    - name: slow
      templateType: NetworkChaos
      deadline: 20s
      networkChaos:
        direction: to
        action: delay
        mode: all
        selector: {labelSelectors: {app: hello}}
        target: {mode: all, selector: {labelSelectors: {app: db}}}
        delay: {latency: 90ms, jitter: 90ms, correlation: "25"}
    - name: kill
      templateType: PodChaos
      deadline: 40s
      podChaos:
        action: pod-kill
        mode: one
        selector: {labelSelectors: {app: hello}}
"""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (POD_KILL, PodChaos),
        (CONTAINER_KILL, PodChaos),
        (DELAY, NetworkChaos),
        (PARTITION, NetworkChaos),
        (WORKFLOW, Workflow),
    ],
    ids=["pod-kill", "container-kill", "delay", "partition", "workflow"],
)
def test_usual_manifests_are_read(text: str, kind: type) -> None:
    (found,) = parse(text, "x.yaml")
    assert isinstance(found if kind is Workflow else found.spec, kind)


def test_values_keep_their_meaning() -> None:
    (delay,) = parse(DELAY, "x.yaml")
    assert isinstance(delay.spec, NetworkChaos)
    assert delay.spec.delay is not None
    assert (delay.spec.delay.latency, delay.spec.delay.correlation) == (0.09, 0.25)
    assert delay.spec.duration == 10.0
    (cut,) = parse(PARTITION, "x.yaml")
    assert isinstance(cut.spec, NetworkChaos)
    assert cut.spec.external_targets == ["192.0.2.10/32", "10.1.0.0/16"]
    assert cut.spec.selector.pods == {"shop": ["store-0"]}


def test_documents_are_read_in_order_and_empty_ones_skipped() -> None:
    found = parse(f"---\n{POD_KILL}---\n---\n{DELAY}", "x.yaml")
    assert [one.metadata.name for one in found] == ["kill-one", "slow"]


def edited(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


WRONG = {
    "no yaml": ("a: [", "document 1: it is not usable YAML at line 1"),
    "nothing": ("# nothing\n", "x.yaml: it holds no object"),
    "a list": ("- a", "document 1: list where an object is expected"),
    "deep": ("[" * 5000, "nested too deeply"),
    "complex key": ("? [a]\n: b", "a key is no string"),
    "alias": ("a: &x 1\nb: *x", "aliases are not supported"),
    "key twice": (edited(POD_KILL, "  mode: one", "  mode: one\n  mode: all"), "mode is given twi"),
    "other group": (edited(POD_KILL, "chaos-mesh.org", "other.org"), "apiVersion: expected"),
    "other kind": (
        edited(POD_KILL, "PodChaos", "StressChaos"),
        "kind: 'StressChaos' is not supported; supported: PodChaos, NetworkChaos, Workflow",
    ),
    "kind is a list": (edited(POD_KILL, "kind: PodChaos", "kind: [a]"), "kind: ['a'] is not supp"),
    "no name": (
        edited(DELAY, "name: slow", "namespace: a"),
        "metadata.name: this field is missing",
    ),
    "bad name": (edited(DELAY, "name: slow", "name: Slow!"), "metadata.name: 'Slow!' is no name"),
    "unknown field": (
        edited(POD_KILL, "mode: one", "mode: one\n  schedular: x"),
        "spec.schedular: this field is not supported",
    ),
    "python's name of a field": (
        edited(CONTAINER_KILL, "containerNames", "container_names"),
        "container_names: this field is not supported",
    ),
    "status": (POD_KILL + "status: {}\n", "status: this field is not supported"),
    "unsupported action": (
        edited(POD_KILL, "pod-kill", "pod-failure"),
        "spec.action: 'pod-failure' is not supported; use 'pod-kill' or 'container-kill'",
    ),
    "unsupported network action": (
        edited(DELAY, "action: delay", "action: corrupt"),
        "spec.action: 'corrupt' is not supported",
    ),
    "unknown mode": (
        edited(POD_KILL, "mode: one", "mode: two"),
        "spec.mode: 'two' is not supported",
    ),
    "fixed without value": (
        edited(POD_KILL, "mode: one", "mode: fixed"),
        "spec: mode fixed needs a whole number as value, got ''",
    ),
    "value as a number": (
        edited(CONTAINER_KILL, 'value: "50"', "value: 50"),
        "spec.value: expected string, got 50",
    ),
    "one with value": (
        edited(POD_KILL, "mode: one", 'mode: one\n  value: "1"'),
        "spec: mode one takes no value",
    ),
    "percent above 100": (edited(CONTAINER_KILL, '"50"', '"150"'), "from '1' to '100', got 150"),
    "fixed none": (
        edited(POD_KILL, "mode: one", 'mode: fixed\n  value: "0"'),
        "mode fixed with value '0' selects no pod",
    ),
    "no container names": (
        edited(CONTAINER_KILL, "  containerNames: [main]\n", ""),
        "spec: action container-kill needs containerNames",
    ),
    "duration without unit": (
        edited(POD_KILL, '"30s"', '"30"'),
        "spec.duration: '30' is no duration; write one such as '30s'",
    ),
    "duration as a number": (edited(POD_KILL, '"30s"', "30"), "spec.duration: 30 is no duration"),
    "negative duration": (edited(POD_KILL, '"30s"', "-30s"), "spec.duration: '-30s' is no dura"),
    "endless duration": (edited(POD_KILL, '"30s"', "9000h"), "longer than 24 h"),
    "network without duration": (
        edited(DELAY, '  duration: "10s"\n', ""),
        "spec.duration is missing: the fault would never be healed",
    ),
    "action without its field": (
        edited(DELAY, '  delay: {latency: "90ms", correlation: "25", jitter: "90ms"}\n', ""),
        "spec: action delay needs the field delay",
    ),
    "field of another action": (
        edited(PARTITION, "  direction", '  loss: {loss: "5"}\n  direction'),
        "spec: action partition takes no field loss",
    ),
    "reorder": (
        edited(DELAY, 'latency: "90ms"', 'latency: "90ms", reorder: {reorder: "5"}'),
        "spec.delay.reorder: this field is not supported",
    ),
    "delay of nothing": (
        edited(edited(DELAY, '"90ms"', '"0s"'), '"90ms"', '"0ms"'),
        "spec.delay: a latency of 0 without jitter delays nothing",
    ),
    "percentage as a number": (
        edited(DELAY, '"25"', "25"),
        'spec.delay.correlation: 25 is no percentage; write a string such as "25"',
    ),
    "percentage above 100": (edited(DELAY, '"25"', '"101"'), "'101' is no percentage"),
    "no target": (
        edited(PARTITION, '  externalTargets: ["192.0.2.10", "10.1.0.0/16"]\n', ""),
        "spec: action partition needs a target here",
    ),
    "target by name": (
        edited(PARTITION, "192.0.2.10", "example.org"),
        "spec.externalTargets[0]: 'example.org' is no IPv4 address or network",
    ),
    "external target of a delay": (
        edited(DELAY, "  direction: to", '  direction: to\n  externalTargets: ["192.0.2.1"]'),
        "spec: action delay takes no externalTargets here",
    ),
    "expression without values": (
        edited(CONTAINER_KILL, ", values: [cache, store]", ""),
        "spec.selector.expressionSelectors[0]: operator In needs values",
    ),
    "unknown selector": (
        edited(POD_KILL, "    labelSelectors", "    nodeSelectors: {a: b}\n    labelSelectors"),
        "spec.selector.nodeSelectors: this field is not supported",
    ),
    "template of another type": (
        edited(WORKFLOW, "templateType: Parallel", "templateType: Schedule"),
        "spec.templates[2].templateType: 'Schedule' is not supported",
    ),
    "field deep inside": (
        edited(WORKFLOW, "latency: 90ms", "latency: 90 ms"),
        "spec.templates[3].networkChaos.delay.latency: '90 ms' is no duration",
    ),
    "duration in a workflow": (
        edited(
            WORKFLOW, "        action: pod-kill", "        duration: 3s\n        action: pod-kill"
        ),
        "spec.templates[4]: podChaos.duration has no place in a Workflow; set deadline",
    ),
    "suspend without deadline": (
        edited(WORKFLOW, "      deadline: 10s\n", ""),
        "spec.templates[1]: templateType Suspend needs a deadline",
    ),
    "children of a suspend": (
        edited(WORKFLOW, "      deadline: 10s\n", "      deadline: 10s\n      children: [kill]\n"),
        "spec.templates[1]: templateType Suspend takes no children",
    ),
    "serial of nothing": (
        edited(WORKFLOW, "children: [quiet, both]", "children: []"),
        "spec.templates[0]: templateType Serial needs children",
    ),
    "unknown child": (
        edited(WORKFLOW, "[quiet, both]", "[quiet, loud]"),
        "spec.templates[0].children[1]: there is no template 'loud'",
    ),
    "unknown entry": (
        edited(WORKFLOW, "entry: the-entry", "entry: exit"),
        "spec.entry: there is no template 'exit'",
    ),
    "two of a name": (
        edited(WORKFLOW, "- name: quiet", "- name: both"),
        "spec.templates[2].name: there are two templates 'both'",
    ),
    "circle": (
        edited(WORKFLOW, "[slow, kill]", "[slow, kill, the-entry]"),
        "the-entry → both → the-entry goes in a circle",
    ),
    "unreachable": (edited(WORKFLOW, "[slow, kill]", "[slow]"), "kill is never reached"),
    "chaos missing": (
        edited(WORKFLOW, "templateType: PodChaos", "templateType: NetworkChaos"),
        "spec.templates[4]: templateType NetworkChaos takes no field podChaos",
    ),
    "same object twice": (POD_KILL + "---" + POD_KILL, "PodChaos kill-one is there twice"),
}


@pytest.mark.parametrize(("text", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_said_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(text, "x.yaml")
    said = str(caught.value)
    assert sentence in said
    assert said.startswith("x.yaml")
    assert said.endswith(".")
    assert "\n" not in said


def test_the_document_is_named() -> None:
    with pytest.raises(ManifestError, match=r"^x.yaml, document 2: spec.mode: 'two'"):
        parse(f"{POD_KILL}---{edited(DELAY, 'mode: one', 'mode: two')}", "x.yaml")


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [("30s", 30), ("1m30s", 90), ("100ms", 0.1), ("1.5h", 5400), ("250us", 0.00025), ("0", 0)],
)
def test_go_durations(text: str, expected_s: float) -> None:
    assert seconds(text) == pytest.approx(expected_s)


@pytest.mark.parametrize("text", ["", "s", "5", "5x", "5s5", " 5s", "+5s", "1e3s", "25h", None])
def test_no_durations(text: object) -> None:
    with pytest.raises(ValueError, match=r"duration|longer"):
        seconds(text)


@pytest.mark.parametrize("text", ["", "-1", "101", "a", "1e1", " 5", "nan", "5%", None])
def test_no_percentages(text: object) -> None:
    with pytest.raises(ValueError, match="percentage"):
        share(text)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read: No such file"):
        read(tmp_path / "none.yaml")
    with pytest.raises(ManifestError, match=r"no \.yaml files"):
        read(tmp_path)
    (tmp_path / "a.yaml").write_bytes(b"\xff")
    with pytest.raises(ManifestError, match="not UTF-8 at byte 0"):
        read(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text("#" * (1 << 20) + POD_KILL)
    with pytest.raises(ManifestError, match="larger than"):
        read(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text(POD_KILL)
    (tmp_path / "b.yml").write_text(WORKFLOW)
    assert [one.metadata.name for one in read(tmp_path)] == ["kill-one", "in-order"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_is_one_class_in_one_file_that_nobody_else_names(kind: type[Chaos]) -> None:
    """A new kind is a file in `kinds` and its entry in `KINDS`; nothing else asks which it is."""
    folder = Path(gantry_chaos.__file__).parent
    sources = [*folder.rglob("*.py"), *Path(gantry_lab.chaos.__file__).parent.rglob("*.py")]
    word = re.compile(rf"import.*\b{kind.__name__}\b")
    naming = {path for path in sources if word.search(path.read_text())}
    assert naming == {folder / "kinds" / "__init__.py"}
    parts = {member for member in vars(Chaos) if not member.startswith(("_", "model_"))}
    assert {"what", "refused_on_processes", "prepare"} <= parts & set(vars(kind))
