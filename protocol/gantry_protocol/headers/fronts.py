"""Header of the request that fronts ask controllers."""

import msgspec

from gantry_protocol.command import Int32

WAIT_MAX_MS = 5_000


class GetFrontGroupsRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetFrontGroups (31010): the groups of a cluster and their masters.

    Attributes:
        cluster_name: whose groups.
        digest: of what is known; an answer with this digest waits for something new.
        wait_ms: for so long, at most ``WAIT_MAX_MS``.
    """

    cluster_name: str
    digest: str = ""
    wait_ms: Int32 = 0
