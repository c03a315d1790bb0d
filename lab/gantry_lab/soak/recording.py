"""The history of a trial: one buffer that its load, its commits and its witness write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_chaos.history.recording import MessageRecorder
from gantry_chaos.history.records import Records

from gantry_lab.soak.commits import now_ms
from gantry_lab.soak.witness import Witness

if TYPE_CHECKING:
    from gantry_cli.target import Admin

LOAD = "load"  # the name of the clients in the history


class Recording:
    """The recording of a soak, and the observers that see more than the load does.

    Args:
        records: the buffer.
        admin: the controllers; None: roles, leaders and metadata are not looked at.
        group: whose.
    """

    def __init__(self, records: Records, admin: Admin | None, group: str | None) -> None:
        self.records = records
        self.messages = MessageRecorder(records.line, now_ms, LOAD)
        self.witness: Witness | None = None
        if admin is not None and group is not None:
            self.witness = Witness(admin, group, records)


def recording(admin: Admin | None, group: str | None) -> Recording:
    """A recording with a buffer of its own."""
    return Recording(Records(), admin, group)
