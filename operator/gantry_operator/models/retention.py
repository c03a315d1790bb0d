"""Retention of a group without a tier: the wish, as the brokers' settings name it.

Nothing that is not set is told to the brokers: their own defaults hold, and an older image that
does not know these settings starts as before.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from gantry_operator.models.base import Model
from gantry_operator.models.parts import NOT_NULLABLE

_MIB: Final = 1024 * 1024


class Retention(Model):
    """How long messages stay on the replicas' volumes, consumed or not."""

    hours: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description=(
            "Files of the log go once all of their messages are older, like RocketMQ's "
            "fileReservedTime. Range 0 to 1000000; 0 keeps them whatever their age; default 72."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    bytes: int | None = Field(
        default=None,
        ge=_MIB,
        description=(
            "Bytes of the confirmed log that each replica keeps; whole files go, so up to one more "
            "stays. At least 1048576; default: no bound but the volume."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    when_full: Literal["Delete", "Refuse"] | None = Field(
        default=None,
        description=(
            "What becomes of the oldest messages when a volume is nearly full (85 %). Delete: they "
            "go before their time, and new ones are taken. Refuse: they stay, and new ones are "
            "refused with code 14. Default Delete."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
