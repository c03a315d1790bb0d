"""The last change and the last failover of a BrokerGroup: what was announced, and what came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from gantry_operator.models.base import Model

if TYPE_CHECKING:
    from pydantic.config import JsonDict

_TIME: JsonDict = {"format": "date-time"}


class ChangeStatus(Model):
    """A change that was carried out in steps."""

    id: str = Field(
        description=(
            "Which one: the id of the request for a switchover, else the generation of the spec "
            "that it began with."
        )
    )
    kind: Literal["RollingUpdate", "ScaleDown", "Switchover", "GrowVolumes", "ApplySettings"] = (
        Field(description="Of which kind.")
    )
    started_at: str = Field(
        description="When the operator took the first step.", json_schema_extra=_TIME
    )
    finished_at: str | None = Field(
        default=None,
        description="When nothing of it was left to do; absent while it goes on.",
        json_schema_extra=_TIME,
    )
    from_epoch: int | None = Field(
        default=None, description="Master epoch when it began; absent with spec.shards."
    )
    to_epoch: int | None = Field(default=None, description="Likewise, when it was finished.")
    steps: int = Field(
        ge=0,
        description="Steps that were foreseen when it began: disruptive ones, volumes or pods.",
    )
    predicted_gap_ms: int | None = Field(
        default=None,
        ge=0,
        description=(
            "Milliseconds for which a step was foreseen to keep sends waiting at most; absent "
            "where that could not be told."
        ),
    )
    measured_gap_ms: int | None = Field(
        default=None,
        ge=0,
        description=(
            "The longest time between two stored messages over a move of the mastership; absent "
            "if none moved, or nobody wrote just before."
        ),
    )
    lost_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Confirmed bytes of the log that are gone; absent where that is not known.",
    )


class FailoverStatus(Model):
    """A change of master that nobody asked for; what nobody saw is absent."""

    group: str | None = Field(default=None, description="The shard, with spec.shards.")
    master: str | None = Field(default=None, description="Pod of the new master, where known.")
    epoch: int = Field(description="Its master epoch.")
    seen: str = Field(description="What the controllers saw of the old master.")
    last_heard_at: str | None = Field(
        default=None,
        description="When they had heard it last, by their leader's clock.",
        json_schema_extra=_TIME,
    )
    noticed_at: str | None = Field(
        default=None,
        description="When they held it to be gone first, by the same clock.",
        json_schema_extra=_TIME,
    )
    elected_at: str = Field(
        description="When the new one was elected, by the same clock.", json_schema_extra=_TIME
    )
    first_write_at: str | None = Field(
        default=None,
        description="When it stored the first record that was confirmed, by its own clock.",
        json_schema_extra=_TIME,
    )
    notice_ms: int | None = Field(
        default=None, ge=0, description="Milliseconds from the last word to the suspicion."
    )
    election_ms: int | None = Field(
        default=None, ge=0, description="Milliseconds from the suspicion to the election."
    )
    resume_ms: int | None = Field(
        default=None,
        ge=0,
        description=(
            "Milliseconds from the election to the first record; absent where the two clocks "
            "contradict each other."
        ),
    )
    gap_ms: int | None = Field(
        default=None,
        ge=0,
        description=(
            "Milliseconds between the old master's last record and the new one's first, by their "
            "own clocks; absent if nobody wrote just before."
        ),
    )
    lost_bytes: int | None = Field(
        default=None,
        ge=0,
        description=(
            "Confirmed bytes of the log that are gone: 0 unless a person gave some up; absent "
            "where that is not known."
        ),
    )
