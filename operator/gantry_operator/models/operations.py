"""Operations on a BrokerGroup that people decide on: a change that may go, a member to forget."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gantry_operator.models.base import Model, Rule
from gantry_operator.models.parts import NOT_NULLABLE

CHANGE_ID_LENGTH = 8
CHANGE_ID = f"^[0-9a-f]{{{CHANGE_ID_LENGTH}}}$"


SOMEBODY_SERVES = Rule(
    "!has(self.fenced) || self.fenced.filter(one, one < self.replicas).size() < self.replicas",
    "fenced names every replica, and nobody would serve: set hibernated to true instead",
    lambda spec: len(spec.fenced_now) < spec.replicas,
)


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


class ForgetWish(Model):
    """A request to strike a member that is gone from the record."""

    id: str = Field(
        min_length=1,
        max_length=63,
        description="Identity of the request, for example a date; each id is carried out once.",
    )
    broker_id: int = Field(
        ge=1,
        description=(
            "Broker id, from status.members: a member that is gone has no pod to be named by. "
            "Refused unless it is dead, not in sync, and without a pod."
        ),
    )


class ForgetStatus(Model):
    """The outcome of the last request to forget a member."""

    id: str = Field(description="Identity of the request.")
    broker_id: int = Field(description="The member.")
    state: Literal["InProgress", "Completed", "Refused"] = Field(
        description="InProgress, Completed or Refused; the last two are final for this id."
    )
    message: str = Field(description="What happened, for people.")


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
