"""Reads that any controller answers, and what their sender must understand.

Source: the controller's table of requests; a test there holds the two equal.
"""

from gantry_protocol.codes import RequestCode

REDIRECTS = "gantryRedirects"
"""The extension field of a request whose sender goes to another controller when it is told to."""

_READS = frozenset(
    {
        RequestCode.GANTRY_GET_CHANGED_GROUPS,
        RequestCode.GANTRY_GET_CONSUMERS,
        RequestCode.GANTRY_GET_CHANGED_CONSUMERS,
        RequestCode.GANTRY_GET_FRONT_GROUPS,
        RequestCode.GANTRY_GET_LOCKS,
        RequestCode.GANTRY_GET_QUEUE_MAPS,
        RequestCode.GANTRY_GET_ACCESS,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
        RequestCode.CONTROLLER_GET_REPLICA_INFO,
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    }
)


def served_by_followers(code: int) -> bool:
    """Whether a follower answers requests of ``code`` from its own state."""
    return code in _READS
