"""Retention of a group without a tier: the wish, as the brokers' settings name it.

Nothing that is not set is told to the brokers: their own defaults hold, and an older image that
does not know these settings starts as before.
"""

from __future__ import annotations

from typing import Final, Literal

from gantry_operator.models.base import Model
from gantry_operator.models.known_settings import field_of

_MIB: Final = 1024 * 1024


class Retention(Model):
    """The time for which messages stay on the replicas' volumes, consumed or not."""

    hours: int | None = field_of("retention_hours", default=None)
    bytes: int | None = field_of(
        "retention_bytes", default=None, ge=_MIB, unset="no bound but the volume"
    )
    when_full: Literal["Delete", "Refuse"] | None = field_of(
        "retention_when_full", default=None, unset="Delete"
    )
