"""The owner of a tier, and the beginning of an empty member with it; pure.

A group that was created from the tier of one that is gone goes on in that tier. Rules protected:

* One group at a time owns a tier (``ChainState.owner``); only its masters claim. A second group
  finds another owner than the one it was told, and is refused.
* A member begins with the tier only where it holds nothing, and only until a master of its group
  has claimed: from then on it is filled by its master, like any member whose volume is new.

What it refuses: a tier that holds nothing, or whose oldest part is gone. To begin without it would
be a loss that nobody was told of.
"""

import msgspec
from gantry_protocol.tier.chain import ChainState


class TakeTier(msgspec.Struct, frozen=True):
    """Take the tier over, and look again."""


class CopyTier(msgspec.Struct, frozen=True):
    """The tier is the group's, and its end is final: copy all of it."""


class BeginEmpty(msgspec.Struct, frozen=True):
    """A master of the group has claimed the tier since: begin empty, it fills this member."""


class CannotBegin(msgspec.Struct, frozen=True):
    """A person must look; ``reason`` is a clause."""

    reason: str


Beginning = TakeTier | CopyTier | BeginEmpty | CannotBegin


def not_owned(chain: ChainState, owner: str) -> str:
    """The reason why masters of the group ``owner`` may not claim; empty where they may.

    Where the oldest versions are gone nobody may know any more who owns the tier.
    """
    if chain.owner in ("", owner):
        return ""
    return (
        f"the tier at shard {chain.shard} belongs to group {chain.owner}, not to {owner}; only "
        f"one group uploads to it"
    )


def beginning(chain: ChainState, *, owner: str, former: str) -> Beginning:
    """The next step of a member that holds nothing, by the newest version of the chain.

    Args:
        chain: as just read.
        owner: uid of the member's group.
        former: uid of the group that is gone.
    """
    if chain.v == 0 or chain.end == chain.start:
        return CannotBegin(f"the tier at shard {chain.shard} holds nothing")
    if chain.base:
        return CannotBegin(
            f"versions up to {chain.base} of the manifest at shard {chain.shard} are gone, and "
            f"what was below offset {chain.first} with them: restore them"
        )
    if chain.owner == owner:
        return CopyTier() if chain.v == chain.taken_v else BeginEmpty()
    if chain.owner == former:
        return TakeTier()
    return CannotBegin(
        f"the tier at shard {chain.shard} belongs to group {chain.owner}, not to {former}, which "
        f"it was to be taken from"
    )
