"""Contact of a master: whether it may have been replaced without hearing of it.

The controllers elect another master when they have not heard this one for their time-out, and only
out of the sync-state set. So as long as its master hears them, or every other member of the set, it
is the master still: from the controllers it would learn of another one, and a member that was
elected, or has heard of the election, has left its epoch and acknowledges nothing in it. The set is
everybody who *may* be in the controllers' (``SyncStateSet.counted``). A master that is alone in it
cannot be replaced, so it serves on, however silent the controllers are.

Rule protected: a master that hears neither takes nothing that it could not keep: a send, a commit,
a lock. Nothing it could acknowledge is given up by that: confirm waits for the very members that
it does not hear, and only the controllers could take them out of the set.

What it refuses: to take the silence of one side alone for an election. Members that are silent
while the controllers answer are shrunk out of the set (``membership``); controllers that are silent
while all members answer are waited for.

All time is this process's own. A process that stood still is not excused here: time passed for the
others, too, and what it reads first was said before.
"""

from collections.abc import Collection

from gantry_protocol.types import BrokerId

from gantry_broker.replica.values import Limits


def is_cut_off(controllers_ms: int, silent: Collection[BrokerId], limits: Limits) -> bool:
    """Whether another master may have been elected.

    Args:
        controllers_ms: for how long they have answered nothing.
        silent: members of the set that are not heard.
        limits: how long to wait.
    """
    return controllers_ms >= limits.cut_off_ms and len(silent) > 0
