"""PodChaos, NetworkChaos and Workflow with the field names and meanings of Chaos Mesh v1alpha1.

The rule protected here: what is accepted means what it means upstream. Fields that exist upstream
and are not supported here are refused like unknown ones, never ignored, and so are combinations
that Chaos Mesh's own webhooks refuse (a duration inside a Workflow, a Suspend without a deadline).

What it refuses beyond upstream: a partition without a target, which would also cut a pod from its
kubelet, and loss or delay without one, since both are injected on the receiving side.
"""

import ipaddress
import math
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator
from pydantic.alias_generators import to_camel

from gantry_chaos.manifests.units import Duration, Percentage

API_VERSION = "chaos-mesh.org/v1alpha1"
NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
NAME_MAX = 253
GRACE_PERIOD_MAX_S = 3600
TEMPLATES_MAX = 200
EXTERNAL_TARGETS_MAX = 64

Mode = Literal["one", "all", "fixed", "fixed-percent", "random-max-percent"]
Direction = Literal["to", "from", "both"]
Phase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]


class Model(BaseModel):
    """A part of a manifest: unknown fields are errors, values do not change."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=False,
        validate_by_alias=True,
        strict=True,
    )


class LabelRequirement(Model):
    """One entry of `expressionSelectors`: a key, an operator and its values."""

    key: str = Field(min_length=1)
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []

    @model_validator(mode="after")
    def _values_as_the_operator_wants(self) -> Self:
        if self.operator in ("In", "NotIn") and not self.values:
            raise ValueError(f"operator {self.operator} needs values")
        if self.operator in ("Exists", "DoesNotExist") and self.values:
            raise ValueError(f"operator {self.operator} takes no values")
        return self


class Selector(Model):
    """Which pods. When `pods` is given, everything else is ignored, as upstream.

    Attributes:
        namespaces: empty: the namespace of the object itself.
        pods: namespace to names.
    """

    namespaces: list[str] = []
    label_selectors: dict[str, str] = {}
    expression_selectors: list[LabelRequirement] = []
    annotation_selectors: dict[str, str] = {}
    nodes: list[str] = []
    pod_phase_selectors: list[Phase] = []
    pods: dict[str, list[str]] = {}


class PodSelector(Model):
    """A selector and how many of the pods it matches.

    Attributes:
        value: for `fixed` a number of pods, for the percentages a string from 0 to 100.
    """

    mode: Mode
    value: str = ""
    selector: Selector

    @model_validator(mode="after")
    def _value_as_the_mode_wants(self) -> Self:
        if self.mode in ("one", "all"):
            if self.value:
                raise ValueError(f"mode {self.mode} takes no value, got {self.value!r}")
            return self
        if not (self.value.isascii() and self.value.isdigit()):
            raise ValueError(f"mode {self.mode} needs a whole number as value, got {self.value!r}")
        number = int(self.value)
        if self.mode == "fixed" and number == 0:
            raise ValueError("mode fixed with value '0' selects no pod")
        if self.mode != "fixed" and not 1 <= number <= 100:
            raise ValueError(f"mode {self.mode} needs a value from '1' to '100', got {number}")
        return self

    def count(self, matching: int) -> tuple[int, int]:
        """The fewest and the most pods to take of `matching` ones."""
        match self.mode:
            case "one":
                return 1, 1
            case "all":
                return matching, matching
            case "fixed":
                number = min(int(self.value), matching)
                return number, number
            case "fixed-percent":
                number = math.ceil(matching * int(self.value) / 100)
                return number, number
            case "random-max-percent":
                return 0, math.ceil(matching * int(self.value) / 100)


class PodChaosSpec(PodSelector):
    """`pod-kill` deletes pods, `container-kill` kills containers; both strike once.

    Attributes:
        grace_period: seconds that a deleted pod is given; 0 kills at once.
    """

    action: Literal["pod-kill", "container-kill"]
    duration: Duration | None = None
    grace_period: int = Field(default=0, ge=0, le=GRACE_PERIOD_MAX_S)
    container_names: list[str] = []

    @model_validator(mode="after")
    def _fields_of_the_action(self) -> Self:
        if self.action == "container-kill" and not self.container_names:
            raise ValueError("action container-kill needs containerNames")
        if self.action == "pod-kill" and self.container_names:
            raise ValueError("action pod-kill takes no containerNames")
        if self.action == "container-kill" and self.grace_period:
            raise ValueError("action container-kill takes no gracePeriod")
        return self


class Delay(Model):
    """Each packet waits `latency` ± `jitter`, uniformly, each wait resembling the one before.

    Attributes:
        correlation: how much; 0: not at all.
    """

    latency: Duration
    jitter: Duration = 0.0
    correlation: Percentage = 0.0

    @model_validator(mode="after")
    def _waits_for_something(self) -> Self:
        if self.latency == 0 and self.jitter == 0:
            raise ValueError("a latency of 0 without jitter delays nothing")
        return self


class Loss(Model):
    """Each packet is dropped with probability `loss`."""

    loss: Percentage
    correlation: Percentage = 0.0

    @model_validator(mode="after")
    def _loses_something(self) -> Self:
        if self.loss == 0:
            raise ValueError("a loss of 0 % loses nothing")
        return self


def _address(text: object) -> str:
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no address")
    try:
        return str(ipaddress.IPv4Network(text))
    except ValueError:
        raise ValueError(
            f"{text!r} is no IPv4 address or network; names and ports are not resolved here"
        ) from None


class NetworkChaosSpec(PodSelector):
    """Packets between the selected pods (the source) and `target`.

    `direction` is seen from the source: `to` strikes packets that it sends, `from` those it gets.
    """

    action: Literal["partition", "loss", "delay"]
    duration: Duration | None = None
    direction: Direction = "to"
    target: PodSelector | None = None
    external_targets: Annotated[
        list[Annotated[str, BeforeValidator(_address)]], Field(max_length=EXTERNAL_TARGETS_MAX)
    ] = []
    delay: Delay | None = None
    loss: Loss | None = None

    @model_validator(mode="after")
    def _fields_of_the_action(self) -> Self:
        for name, given in (("delay", self.delay), ("loss", self.loss)):
            if given is not None and self.action != name:
                raise ValueError(f"action {self.action} takes no field {name}")
            if given is None and self.action == name:
                raise ValueError(f"action {name} needs the field {name}")
        if self.action != "partition" and self.external_targets:
            raise ValueError(
                f"action {self.action} takes no externalTargets here: "
                "it is injected where packets arrive, and that is not a pod"
            )
        if self.target is None and not self.external_targets:
            raise ValueError(
                f"action {self.action} needs a target here: without one the pod would also be "
                "cut off from its kubelet's probes"
            )
        return self


class Metadata(Model):
    """A name, and optionally a namespace, labels and annotations."""

    name: str = Field(pattern=NAME, max_length=NAME_MAX)
    namespace: str | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class _Object(Model):
    """What every object has."""

    api_version: Literal["chaos-mesh.org/v1alpha1"]
    metadata: Metadata
    _where: str = PrivateAttr(default="")

    @property
    def where(self) -> str:
        """File and document that it was read from, for errors."""
        return self._where


class PodChaos(_Object):
    """An experiment with pods, by itself."""

    kind: Literal["PodChaos"]
    spec: PodChaosSpec


class NetworkChaos(_Object):
    """An experiment with the network, by itself."""

    kind: Literal["NetworkChaos"]
    spec: NetworkChaosSpec

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.spec.duration is None:
            raise ValueError("spec.duration is missing: the fault would never be healed")
        return self


class Template(Model):
    """One node of a Workflow.

    Attributes:
        deadline: for a chaos and a Suspend how long it lasts; for Serial and Parallel after what
            time everything in it is ended. None: not bounded by itself.
    """

    name: str = Field(pattern=NAME, max_length=NAME_MAX)
    template_type: Literal["Serial", "Parallel", "Suspend", "PodChaos", "NetworkChaos"]
    deadline: Duration | None = None
    children: list[str] = []
    pod_chaos: PodChaosSpec | None = None
    network_chaos: NetworkChaosSpec | None = None

    @property
    def chaos(self) -> PodChaosSpec | NetworkChaosSpec | None:
        """The fault; None for a node that only orders others."""
        return self.pod_chaos or self.network_chaos

    @model_validator(mode="after")
    def _fields_of_the_type(self) -> Self:
        kind = self.template_type
        wants = {"PodChaos": "podChaos", "NetworkChaos": "networkChaos"}
        given = {"podChaos": self.pod_chaos, "networkChaos": self.network_chaos}
        for name, chaos in given.items():
            if chaos is None and wants.get(kind) == name:
                raise ValueError(f"templateType {kind} needs the field {name}")
            if chaos is not None and wants.get(kind) != name:
                raise ValueError(f"templateType {kind} takes no field {name}")
            if chaos is not None and chaos.duration is not None:
                raise ValueError(f"{name}.duration has no place in a Workflow; set deadline")
        if kind in ("Serial", "Parallel"):
            if not self.children:
                raise ValueError(f"templateType {kind} needs children")
        elif self.children:
            raise ValueError(f"templateType {kind} takes no children")
        if kind == "Suspend" and not self.deadline:
            raise ValueError("templateType Suspend needs a deadline")
        if self.deadline == 0:
            raise ValueError("a deadline of 0 s leaves no time")
        return self


class WorkflowSpec(Model):
    """Templates by name, and the one it begins with."""

    entry: str
    templates: list[Template] = Field(min_length=1, max_length=TEMPLATES_MAX)


class Workflow(_Object):
    """Experiments in order."""

    kind: Literal["Workflow"]
    spec: WorkflowSpec


Experiment = PodChaos | NetworkChaos | Workflow
