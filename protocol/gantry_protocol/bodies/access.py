"""Bodies about users and their rules: upstream's, of its tools, and what brokers are told."""

import msgspec

from gantry_protocol.access.rules import Rule, User, make_rule
from gantry_protocol.bodies.codec import Body


class UserInfo(Body, frozen=True, omit_defaults=True):
    """CreateUser (3001), UpdateUser (3002), and in answers; there it has no password."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type!r}, {self.user_status!r})"


class RuleInfo(Body, frozen=True, omit_defaults=True):
    """One rule, ``PolicyEntryInfo``."""

    resource: str | None = None
    actions: list[str] = msgspec.field(default_factory=list)
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body, frozen=True, omit_defaults=True):
    """Rules of one type."""

    policy_type: str | None = None
    entries: list[RuleInfo] = msgspec.field(default_factory=list)


class AclInfo(Body, frozen=True, omit_defaults=True):
    """CreateAcl (3006), UpdateAcl (3007), and in answers."""

    subject: str | None = None
    policies: list[PolicyInfo] = msgspec.field(default_factory=list)


class ClusterAccess(Body, frozen=True):
    """The answer to GetAccess (31017): users of a cluster, as the controllers have them.

    Attributes:
        index: to be named as known in the next question; 0 while nothing was ever said.
        enabled: whether every request of a client needs a user.
        is_news: whether the rest is told; it is left out for who knows it.
        users: by name, with their secrets: only to who has shown the quorum's key.
    """

    index: int
    enabled: bool = False
    is_news: bool = False
    users: dict[str, User] = msgspec.field(default_factory=dict)


def user_info(name: str, user: User) -> UserInfo:
    """A user as answers show it."""
    return UserInfo(name, None, user.kind, user.status)


def acl_info(name: str, user: User, resource_filter: str = "") -> AclInfo:
    """The rules of a user, those whose resource has ``resource_filter`` in it."""
    policies: dict[str, list[RuleInfo]] = {}
    for rule in user.rules:
        if resource_filter in rule.resource:
            sources = list(rule.sources) or None
            info = RuleInfo(rule.resource, list(rule.actions), sources, rule.decision)
            policies.setdefault(rule.policy, []).append(info)
    return AclInfo(f"User:{name}", [PolicyInfo(kind, rules) for kind, rules in policies.items()])


def rules_of(acl: AclInfo) -> list[Rule]:
    """The rules that a request names.

    Raises:
        AccessError: one of them can be none; says which.
    """
    return [
        make_rule(
            entry.resource or "",
            entry.actions,
            entry.source_ips or (),
            entry.decision or "",
            policy.policy_type or "",
        )
        for policy in acl.policies
        for entry in policy.entries
    ]
