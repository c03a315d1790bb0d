"""The list of all groups, a page at a time.

A page is the living groups among the next ``limit`` keys in the order of (cluster, name); the token
that the next page is asked for with is the last key looked at. Nothing is held for whoever pages:
each page is as new as its own request, a group that exists all the while is in exactly one of them,
and a page may be short, or empty, and still not be the last.
"""

import base64
import binascii

import msgspec

from gantry_controller.metadata.state import BrokerGroup, GroupKey, MetadataState

LIMIT_MAX = 500
"""Groups of a page, if nothing smaller is asked for: 0.5 MB, and 50 ms of work in ten turns."""

_decoder: msgspec.json.Decoder[GroupKey] = msgspec.json.Decoder(GroupKey)


class Page(msgspec.Struct, frozen=True):
    """One page.

    Attributes:
        index: of the last entry it reflects.
        groups: the living ones, in order.
        token: asks for the next page; None after the last one.
    """

    index: int
    groups: list[BrokerGroup]
    token: str | None


def page_after(state: MetadataState, after: GroupKey | None, limit: int) -> Page:
    """The page behind the key ``after``; the first one for None."""
    keys = state.keys_after(after, limit + 1)
    groups = [group for key in keys[:limit] if not (group := state.groups[key]).removed]
    return Page(state.index, groups, _token_of(keys[limit - 1]) if len(keys) > limit else None)


def key_of(token: str) -> GroupKey:
    """The key in a token.

    Raises:
        ValueError: it is none of ours.
    """
    try:
        key: GroupKey = _decoder.decode(base64.urlsafe_b64decode(token))
    except (binascii.Error, msgspec.MsgspecError, ValueError) as error:
        raise ValueError(f"continue={token[:40]!r} is no place in the list of groups.") from error
    return key


def _token_of(key: GroupKey) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode()
