"""Headers of requests about users: upstream's 3001 to 3010, and how brokers ask for all of them.

``cluster_name`` is an extension: a broker that passes a request on says of which cluster it is.
"""

import msgspec

from gantry_protocol.command import Int32, Int64

WAIT_MAX_MS = 5_000


class UserRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """CreateUser (3001), UpdateUser (3002), DeleteUser (3003), GetUser (3004)."""

    username: str
    cluster_name: str = ""


class ListUsersRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """ListUser (3005): those whose name has ``filter`` in it."""

    filter: str | None = None
    cluster_name: str = ""


class AclRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """CreateAcl (3006), UpdateAcl (3007), GetAcl (3009)."""

    subject: str
    cluster_name: str = ""


class DeleteAclRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """DeleteAcl (3008); without a resource all rules go."""

    subject: str
    policy_type: str | None = None
    resource: str | None = None
    cluster_name: str = ""


class ListAclsRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """ListAcl (3010): subjects and resources that have the filters in them."""

    subject_filter: str | None = None
    resource_filter: str | None = None
    cluster_name: str = ""


class GetAccessRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetAccess (31017): the users of a cluster.

    Attributes:
        cluster_name: whose users.
        known_index: of the last answer; -1 at first.
        wait_ms: how long an answer without news may wait, at most ``WAIT_MAX_MS``.
        no_secrets: a controller has passed it on, to which its sender has not shown the key.
    """

    cluster_name: str
    known_index: Int64 = -1
    wait_ms: Int32 = 0
    no_secrets: bool = False


class SetAccessRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """SetAccess (31018): whether every request of a client of the cluster needs a user."""

    cluster_name: str
    enabled: bool
