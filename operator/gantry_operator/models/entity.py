"""The parts that Topics, MessageUsers and ConsumerGroups share: whose they are, and their end.

Each of them stands for one thing in the metadata of a cluster, and owns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from gantry_operator.models.base import Condition, Model, Resource
from gantry_operator.models.parts import ControllerRef

if TYPE_CHECKING:
    from pydantic.config import JsonDict

DeletionPolicy = Literal["Retain", "Delete"]
CONDITIONS: JsonDict = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
}


class EntitySpec(Model):
    """The wish for something in the metadata of a cluster."""

    controller_ref: ControllerRef = Field(
        default_factory=ControllerRef,
        description="The ControllerGroup whose cluster it is in, in the same namespace.",
    )
    adopt: bool = Field(
        default=False,
        description=(
            "true: what exists under the name with other settings is taken over and gets these. "
            "What exists just as wished is taken over in any case. Default false."
        ),
    )
    deletion_policy: DeletionPolicy


class EntityStatus(Model):
    """The operator's observations."""

    observed_generation: int = Field(
        ge=-1, description="The generation of the spec this status was concluded from."
    )
    summary: str = Field(
        default="",
        description=(
            "All of it in one line, for example Healthy, Rolling 2/3, Refused NameTaken, Crashing "
            "with the process's last words, or Deleting with what it waits for."
        ),
    )
    name: str | None = Field(
        default=None,
        description=(
            "Name in the cluster, from the moment at which the resource owns what is there; what "
            "is there without it belongs to others."
        ),
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        description=(
            "Accepted, Ready, which says whether the cluster has what is wished, and while it is "
            "False Stalled or Reconciling, which tools by the rules of kstatus read."
        ),
        json_schema_extra=CONDITIONS,
    )


class Entity(Resource):
    """A resource that stands for one thing in the metadata of a cluster."""

    spec: Any
    status: Any = None

    @property
    def cluster(self) -> str:
        """The cluster that it is in."""
        name: str = self.spec.controller_ref.name
        return name

    @property
    def named(self) -> str:
        """The name in the cluster."""
        raise NotImplementedError

    @property
    def deletes(self) -> bool:
        """Whether what it stands for goes with it."""
        return bool(self.spec.deletion_policy == "Delete")
