"""Workflows of Chaos Mesh v1alpha1, and the objects that a file may hold: one for each kind.

The fields of a template and the objects follow from the kinds, so that a new one is known here by
being in `KINDS`. Refused, as upstream: a duration inside a Workflow, a Suspend without a deadline;
and by itself a chaos that has to be healed and has no duration.
"""

from __future__ import annotations

from typing import Any, Literal, Self, cast

from pydantic import Field, create_model, model_validator

from gantry_chaos.kinds import KINDS
from gantry_chaos.kinds.chaos import Chaos  # noqa: TC001 -- pydantic reads it
from gantry_chaos.manifests.model import NAME, NAME_MAX, Model, Object
from gantry_chaos.manifests.units import Duration  # noqa: TC001 -- pydantic reads it

TEMPLATES_MAX = 200
_NODES = ("Serial", "Parallel", "Suspend")


class Template(Model):
    """One node of a Workflow; those that are read have a field for each kind, too.

    Attributes:
        deadline: for a chaos and a Suspend how long it lasts; for Serial and Parallel after what
            time everything in it is ended. None: not bounded by itself.
    """

    name: str = Field(pattern=NAME, max_length=NAME_MAX)
    template_type: str
    deadline: Duration | None = None
    children: list[str] = Field(default=[])

    @property
    def chaos(self) -> Chaos | None:
        """The fault; None for a node that only orders others."""
        given = (getattr(self, kind.__name__, None) for kind in KINDS)
        return next((item for item in given if item is not None), None)

    @model_validator(mode="after")
    def _fields_of_the_type(self) -> Self:
        node = self.template_type
        for kind in KINDS:
            chaos: Chaos | None = getattr(self, kind.__name__)
            if chaos is None and node == kind.__name__:
                raise ValueError(f"templateType {node} needs the field {kind.FIELD}")
            if chaos is not None and node != kind.__name__:
                raise ValueError(f"templateType {node} takes no field {kind.FIELD}")
            if chaos is not None and chaos.duration is not None:
                raise ValueError(f"{kind.FIELD}.duration has no place in a Workflow; set deadline")
        if node in ("Serial", "Parallel"):
            if not self.children:
                raise ValueError(f"templateType {node} needs children")
        elif self.children:
            raise ValueError(f"templateType {node} takes no children")
        if node == "Suspend" and not self.deadline:
            raise ValueError("templateType Suspend needs a deadline")
        if self.deadline == 0:
            raise ValueError("a deadline of 0 s leaves no time")
        return self


_FIELDS: dict[str, Any] = {
    kind.__name__: (kind | None, Field(default=None, alias=kind.FIELD)) for kind in KINDS
}
_TYPE: Any = Literal[(*_NODES, *(kind.__name__ for kind in KINDS))]
_TEMPLATE: Any = create_model("Template", __base__=Template, template_type=(_TYPE, ...), **_FIELDS)


class WorkflowSpec(Model):
    """Templates by name, and the one it begins with."""

    entry: str
    templates: list[_TEMPLATE] = Field(min_length=1, max_length=TEMPLATES_MAX)


class Workflow(Object):
    """Experiments in order."""

    kind: Literal["Workflow"]
    spec: WorkflowSpec


class Alone(Object):
    """An experiment with one chaos, by itself."""

    kind: str
    spec: Chaos

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if not self.spec.STRIKES_ONCE and self.spec.duration is None:
            raise ValueError("spec.duration is missing: the fault would never be healed")
        return self


def _alone(kind: type[Chaos]) -> type[Alone]:
    name = kind.__name__
    fields: dict[str, Any] = {"kind": (Literal[name], ...), "spec": (kind, ...)}
    return cast("type[Alone]", create_model(name, __base__=Alone, **fields))


Experiment = Alone | Workflow
OBJECTS: dict[str, type[Alone] | type[Workflow]] = {
    **{kind.__name__: _alone(kind) for kind in KINDS},
    "Workflow": Workflow,
}
"""What a file may hold, by `kind`."""
