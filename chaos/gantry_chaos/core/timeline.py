"""From experiments to a time line: when which fault begins and ends. Pure.

The rule protected here: every fault ends, at its own deadline or at that of a node around it, and
every fault of the manifest begins. A chaos node lasts until its deadline even when it strikes only
once, as upstream; a Serial or Parallel whose deadline leaves a child no time is an error, since the
fault would be missing without a word.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import msgspec

from gantry_chaos.errors import ManifestError
from gantry_chaos.kinds.chaos import Chaos  # noqa: TC001 -- msgspec reads it
from gantry_chaos.manifests.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_chaos.manifests.workflow import Experiment, Template

FAULTS_MAX = 500
DEFAULT_NAMESPACE = "default"
PROOF_S = 3.0  # a few attempts to connect that fail after a second each
_ORDER = ("prove", "heal", "inject")


class Fault(msgspec.Struct, frozen=True):
    """One fault of a run.

    Attributes:
        id: unique within the run.
        where: file, document and field that it was read from, for errors.
        namespace: of the object that it stands in.
        spec: what is done to whom.
        start_s: seconds since the run began.
        end_s: when it is healed; a fault that strikes once is only given up then.
    """

    id: str
    where: str
    namespace: str
    spec: Chaos
    start_s: float
    end_s: float

    @property
    def strikes_once(self) -> bool:
        """There is nothing to heal: pods and containers come back by themselves."""
        return self.spec.STRIKES_ONCE


class FaultStep(msgspec.Struct, frozen=True):
    """One thing to do about a fault."""

    at_s: float
    kind: Literal["prove", "heal", "inject"]
    fault: Fault


class Timeline(msgspec.Struct, frozen=True):
    """All faults of a run in the order of their beginning, and when the run ends."""

    faults: tuple[Fault, ...]
    end_s: float

    def steps(self) -> list[FaultStep]:
        """Everything in order; at one moment faults are proved, then healed, then injected.

        A proof takes a while, so it begins before the heal is due: `PROOF_S`, or half of a short
        fault. That of a fault that strikes once is taken at its end, when all had time to go.
        """
        found: list[FaultStep] = []
        for fault in self.faults:
            lead_s = 0.0 if fault.strikes_once else min(PROOF_S, (fault.end_s - fault.start_s) / 2)
            found.append(FaultStep(fault.start_s, "inject", fault))
            found.append(FaultStep(fault.end_s - lead_s, "prove", fault))
            found.append(FaultStep(fault.end_s, "heal", fault))
        return sorted(found, key=lambda step: (step.at_s, _ORDER.index(step.kind), step.fault.id))


def timeline(experiments: Sequence[Experiment], *, namespace: str = DEFAULT_NAMESPACE) -> Timeline:
    """The time line of experiments that all begin now, as `kubectl apply` would begin them.

    Args:
        experiments: what a reader found in one file.
        namespace: of objects that name none.

    Raises:
        ManifestError: a fault never ends, or never begins.
    """
    names = _Names()
    faults: list[Fault] = []
    end_s = 0.0
    for experiment in experiments:
        where = experiment.where or f"{experiment.kind} {experiment.metadata.name}"
        inside = experiment.metadata.namespace or namespace
        if isinstance(experiment, Workflow):
            walk = _Walk(where, inside, experiment.spec.templates, names)
            ended_s = walk.play(experiment.spec.entry, 0.0, math.inf)
            faults += walk.faults
        else:
            ended_s = experiment.spec.duration or 0.0
            name = names.unique(experiment.metadata.name)
            faults.append(Fault(name, f"{where}: spec", inside, experiment.spec, 0.0, ended_s))
        end_s = max(end_s, ended_s)
    if len(faults) > FAULTS_MAX:
        raise ManifestError("The experiments", "", f"they have more than {FAULTS_MAX} faults")
    return Timeline(tuple(sorted(faults, key=lambda fault: (fault.start_s, fault.id))), end_s)


class _Names:
    """Makes names unique by a number."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def unique(self, name: str) -> str:
        number, result = 1, name
        while result in self._given:
            number += 1
            result = f"{name}-{number}"
        self._given.add(result)
        return result


class _Walk:
    """Plays the nodes of one Workflow."""

    def __init__(
        self, where: str, namespace: str, templates: Sequence[Template], names: _Names
    ) -> None:
        self.faults: list[Fault] = []
        self._where = where
        self._namespace = namespace
        self._templates = {template.name: template for template in templates}
        self._paths = {
            template.name: f"spec.templates[{n}]" for n, template in enumerate(templates)
        }
        self._names = names

    def play(self, name: str, start_s: float, limit_s: float) -> float:
        """Begin a node at `start_s`; when it ends, at the latest at `limit_s`."""
        template = self._templates[name]
        if start_s >= limit_s:
            raise self._error(template, "the deadline around it is over before it begins")
        end_s = min(limit_s, start_s + (template.deadline or math.inf))
        if template.chaos is not None:
            if len(self.faults) >= FAULTS_MAX:
                raise self._error(template, f"there are more than {FAULTS_MAX} faults")
            if math.isinf(end_s):
                raise self._error(template, "it has no deadline, so it would never be healed")
            where = f"{self._where}: {self._paths[name]}.{template.chaos.FIELD}"
            unique = self._names.unique(name)
            fault = Fault(unique, where, self._namespace, template.chaos, start_s, end_s)
            self.faults.append(fault)
            return end_s
        match template.template_type:
            case "Serial":
                at_s = start_s
                for child in template.children:
                    at_s = self.play(child, at_s, end_s)
                return at_s
            case "Parallel":
                return max(self.play(child, start_s, end_s) for child in template.children)
            case _:
                return end_s

    def _error(self, template: Template, problem: str) -> ManifestError:
        path = f"{self._paths[template.name]} ({template.name})"
        return ManifestError(self._where, path, problem)
