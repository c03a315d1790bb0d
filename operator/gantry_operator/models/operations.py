"""Operations on a BrokerGroup that people decide on: when a change goes, and whether pods run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gantry_operator.models.base import Model
from gantry_operator.models.parts import NOT_NULLABLE

CHANGE_ID_LENGTH = 8
CHANGE_ID = f"^[0-9a-f]{{{CHANGE_ID_LENGTH}}}$"


class Update(Model):
    """The moment of a change that restarts pods."""

    strategy: Literal["Automatic", "Supervised"] = Field(
        default="Automatic",
        description=(
            "Automatic carries a change out as soon as it is wished. Supervised announces one that "
            "would restart pods in status.pendingChange, and waits for a person; meanwhile all "
            "pods, also those that are replaced after a fault, have the old template and settings. "
            "What restarts no pod is carried out at once. Default Automatic."
        ),
    )
    approved: str | None = Field(
        default=None,
        pattern=CHANGE_ID,
        description=(
            "The id of the change that may go, from status.pendingChange.id or from gantry kube "
            "plan, which tells it before the change is applied. Another change, also a newer one, "
            "has another id. Default none."
        ),
        json_schema_extra=NOT_NULLABLE,
    )

    @property
    def is_supervised(self) -> bool:
        """Whether changes wait for a person."""
        return self.strategy == "Supervised"


class PendingChangeStatus(Model):
    """A change that waits for `spec.update.approved`, or after that for its turn."""

    id: str = Field(description="The value that spec.update.approved is to have.")
    what: str = Field(description="The parts of the pods that differ, for people.")
    image: str = Field(description="The image that pods would get.")
    restarts: int = Field(default=0, ge=0, description="Pods that would be restarted.")
    hand_overs: int = Field(default=0, ge=0, description="Masterships that would move.")
    gap_ms: int | None = Field(
        default=None,
        ge=0,
        description=(
            "Milliseconds for which sends would wait at a time; absent where nobody can tell."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
