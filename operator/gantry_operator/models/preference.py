"""The zones in which people wish the master of a group, and what came of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gantry_operator.models.base import Model, Rule
from gantry_operator.models.parts import NOT_NULLABLE

Zone = Annotated[str, Field(min_length=1, max_length=63)]
MasterState = Literal["Preferred", "Waiting", "Due", "Moving", "Kept", "Unknown"]


class PreferredMaster(Model):
    """The zones in which the master is wished."""

    zones: tuple[Zone, ...] = Field(
        min_length=1,
        max_length=9,
        description="Values of the label topology.kubernetes.io/zone of nodes, the best first.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


class PreferredMasterStatus(Model):
    """The reason why the master is where it is, by the zones in which it is wished."""

    zone: str | None = Field(
        default=None, description="The master's zone.", json_schema_extra=NOT_NULLABLE
    )
    state: MasterState = Field(
        description=(
            "Preferred, Waiting, Due (for its turn to move), Moving, Kept, or Unknown, as the "
            "message says."
        )
    )
    since: str | None = Field(
        default=None,
        description="Since when it is so, or could move.",
        json_schema_extra={"format": "date-time", "nullable": False},
    )
    wait_seconds: int = Field(ge=0, description="How long all must be well before it moves.")
    message: str = Field(description="What is waited for, for people.")


NOT_FOR_SHARDS = Rule(
    "!has(self.preferredMaster) || !has(self.shards)",
    "preferredMaster is for one group; masters of shards are spread over the pods: remove it",
    lambda spec: spec.preferred_master is None or spec.shards is None,
)
DISTINCT = Rule(
    None,  # a set, the schema says
    "preferredMaster names a zone twice: remove one",
    lambda spec: (
        spec.preferred_master is None
        or len(set(spec.preferred_master.zones)) == len(spec.preferred_master.zones)
    ),
)
