"""The minimum of members in sync: it rises when it is reached, never before.

A master acknowledges nothing while its sync-state set is smaller than the minimum. A minimum that
were raised before the new members have their copies would stop every send for as long as the copies
take. So the controllers keep the minimum that is in force until as many members as the new one asks
for are in sync; nothing that was promised is taken back meanwhile. From then on it stays: a member
that dies later stops the sends, which is what the minimum is for. A group that has acknowledged
nothing yet, or for which nobody declared a minimum, begins with what its owner wishes.

Who is in sync is read before the minimum is declared. A member that dies between the two is as one
that dies a moment after the minimum rose, so the controllers need no rule of their own for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.admin import GroupView

from gantry_operator.plan.members import ObservedGroup

if TYPE_CHECKING:
    from gantry_protocol.admin_client.outcomes import NotDeclared

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def minimum_now(view: GroupView | NotDeclared, wished: int) -> int:
    """The minimum to declare, given what the controllers know: in force now, or `wished`."""
    if not isinstance(view, GroupView) or not view.sync_state_set:
        return wished
    in_force = view.min_in_sync_replicas
    if in_force is None or wished <= in_force or len(ObservedGroup(view, ()).in_sync()) >= wished:
        return wished
    return in_force


def raising(group: ObservedGroup, wished: int) -> str:
    """The obstacle of a higher minimum, for people; empty if it is as wished."""
    now = minimum_now(group.view, wished)
    if now == wished:
        return ""
    in_sync, master = group.in_sync(), group.master()
    behind = [
        f"broker {member.broker_id} is {_roughly(master.max_offset - member.max_offset)} behind"
        for member in group.view.members
        if master is not None and member.alive and not member.fenced
        if member.broker_id not in in_sync
    ]
    return (
        f"minInSyncReplicas stays {now} until {wished} replicas are in sync; {len(in_sync)} "
        f"{'is' if len(in_sync) == 1 else 'are'}{''.join(f', {item}' for item in behind)}."
    )


def _roughly(size_bytes: int) -> str:
    """A size of one digit, rounded up: a copy under way changes the text a few dozen times."""
    size, unit = max(size_bytes, 0), 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = -(-size // 1024), unit + 1
    step = 10 ** (len(str(size)) - 1)
    return f"up to {-(-size // step) * step} {UNITS[unit]}"
