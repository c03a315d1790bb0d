"""Users and their rules, as they are written, kept and told; upstream's ACL 2.0 (RIP-67).

A rule says which actions on which resource it allows or denies, and from which addresses. It is
kept as text, in one canonical form, so that equal rules are equal on every replica. Everything is
bounded: names, secrets, the rules of a user, the addresses of a rule.

No text that is made here contains a secret, and a user's ``repr`` does not either.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import GantryError
from gantry_protocol.names import LONG_TOPIC_CHARS_MAX

USER_CHARS_MAX = 64
SECRET_CHARS_MIN, SECRET_CHARS_MAX = 8, 128
RULES_MAX = 64  # of one user
SOURCES_MAX = 16  # of one rule
RESERVED_USER = "gantry"  # the access key of requests that are signed with the quorum's key
SUBJECT_PREFIX = "User:"
ANY = "*"

NamedT = TypeVar("NamedT", bound=StrEnum)

_is_user_name = re.compile(r"[A-Za-z0-9_.@-]+").fullmatch
_is_secret = re.compile(r"[\x21-\x7e]+").fullmatch
_is_pattern = re.compile(r"[%|a-zA-Z0-9_.@-]+").fullmatch


class AccessError(GantryError):
    """A user or a rule that cannot be; the sentence says why."""

    answer_code = ResponseCode.INVALID_PARAMETER


class UserType(StrEnum):
    """Upstream's names. A super user may do everything, whatever its rules say."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    """Upstream's names. A user that is disabled keeps its rules and may do nothing."""

    ENABLE = "enable"
    DISABLE = "disable"


class ResourceKind(StrEnum):
    """Kinds of resources."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"


class Action(StrEnum):
    """Upstream's names; ``ALL`` stands for each of the others."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Decision(StrEnum):
    """Upstream's names."""

    ALLOW = "Allow"
    DENY = "Deny"


class Policy(StrEnum):
    """Upstream's names. Default rules count where no custom one of the user fits."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Rule(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One rule; made by ``make_rule``, which checks it.

    Attributes:
        resource: ``*``, ``ResourceKind:*``, ``ResourceKind:name`` or ``ResourceKind:prefix*``.
        actions: in the order of ``Action``, each once.
        sources: addresses or networks; none means all.
        decision: see there.
        policy: see there.
    """

    resource: str
    actions: tuple[str, ...]
    sources: tuple[str, ...] = ()
    decision: str = Decision.ALLOW.value
    policy: str = Policy.CUSTOM.value

    @property
    def key(self) -> tuple[str, str]:
        """Tells the rules of one user apart: a second one of the same key replaces the first."""
        return self.policy, self.resource


class User(msgspec.Struct, frozen=True, array_like=True):
    """One user.

    Attributes:
        secret: signs its requests; in clear, since whoever checks a signature needs it.
        kind: a ``UserType``.
        status: a ``UserStatus``.
        rules: of different keys, in the order of their keys.
    """

    secret: str
    kind: str = UserType.NORMAL.value
    status: str = UserStatus.ENABLE.value
    rules: tuple[Rule, ...] = ()

    def __repr__(self) -> str:
        return f"User(kind={self.kind!r}, status={self.status!r}, rules={self.rules!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What is shown of it: no secret."""
        return [("kind", self.kind), ("status", self.status), ("rules", self.rules)]

    @property
    def is_enabled(self) -> bool:
        """Whether its signatures count."""
        return self.status == UserStatus.ENABLE.value

    @property
    def is_super(self) -> bool:
        """Whether it may do everything."""
        return self.kind == UserType.SUPER.value


def user_problem(name: str) -> str | None:
    """The reason why ``name`` cannot be a user's; None when it can."""
    if not name:
        return "The user has no name."
    if len(name) > USER_CHARS_MAX or _is_user_name(name) is None:
        return (
            f"A user's name has at most {USER_CHARS_MAX} letters, digits and any of _ . @ -, and "
            "no others."
        )
    if name == RESERVED_USER:
        return f"The user {RESERVED_USER} stands for the quorum's key; take another name."
    return None


def secret_problem(secret: str) -> str | None:
    """The reason why a secret cannot be one; None when it can. It is never in the text."""
    if not SECRET_CHARS_MIN <= len(secret) <= SECRET_CHARS_MAX or _is_secret(secret) is None:
        return (
            f"A user's secret has {SECRET_CHARS_MIN} to {SECRET_CHARS_MAX} printable characters "
            "of ASCII, without spaces."
        )
    return None


def user_type(text: str) -> UserType:
    """The type that ``text`` names, in any case of letters.

    Raises:
        AccessError: it names none.
    """
    return _named(UserType, text, "type of user")


def user_status(text: str) -> UserStatus:
    """The status that ``text`` names, in any case of letters.

    Raises:
        AccessError: it names none.
    """
    return _named(UserStatus, text, "status of a user")


def policy_type(text: str | None) -> Policy:
    """The type of policy that ``text`` names, in any case of letters; custom for none.

    Raises:
        AccessError: it names none.
    """
    return _named(Policy, text or Policy.CUSTOM.value, "type of policy")


def subject_user(subject: str) -> str:
    """The user's name in ``User:name``; upstream's tools write the prefix.

    Raises:
        AccessError: the subject is no user.
    """
    kind, colon, name = subject.partition(":")
    if not colon or kind.lower() != SUBJECT_PREFIX[:-1].lower() or user_problem(name) is not None:
        raise AccessError(f"The subject {_short(subject)} is no user; write User:NAME.")
    return name


def make_rule(
    resource: str,
    actions: Iterable[str],
    sources: Iterable[str] = (),
    decision: str = Decision.ALLOW.value,
    policy: str = Policy.CUSTOM.value,
) -> Rule:
    """The rule in its canonical form.

    Raises:
        AccessError: some part of it is none; says which.
    """
    named = {_named(Action, action.strip(), "action") for action in actions}
    if not named:
        raise AccessError(f"The rule on {_short(resource)} names no action.")
    networks = {_source(source.strip()) for source in sources}
    if len(networks) > SOURCES_MAX:
        raise AccessError(f"A rule names at most {SOURCES_MAX} addresses.")
    return Rule(
        resource=canonical_resource(resource),
        actions=tuple(action.value for action in Action if action in named),
        sources=tuple(sorted(networks)),
        decision=_named(Decision, decision, "decision").value,
        policy=policy_type(policy).value,
    )


def canonical_resource(text: str) -> str:
    """A resource in its canonical form.

    Raises:
        AccessError: it is none.
    """
    text = text.strip()
    if text == ANY:
        return ANY
    kind, _, pattern = text.partition(":")
    wish = "write *, or Topic:NAME, Group:NAME, Cluster:NAME, with * at the end for a prefix"
    named = next((item for item in ResourceKind if item.value.lower() == kind.lower()), None)
    if named is None or not pattern:
        raise AccessError(f"{_short(text)} is no resource: {wish}.")
    name = pattern.removesuffix(ANY)
    if len(name) > LONG_TOPIC_CHARS_MAX or (name and _is_pattern(name) is None):
        raise AccessError(f"{_short(text)} is no resource: {wish}.")
    return f"{named.value}:{pattern}"


def merged(old: Sequence[Rule], new: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules once ``new`` have replaced those of their keys, or come beside them.

    Raises:
        AccessError: they are too many.
    """
    rules = {rule.key: rule for rule in (*old, *new)}
    if len(rules) > RULES_MAX:
        raise AccessError(f"A user has at most {RULES_MAX} rules.")
    return tuple(rules[key] for key in sorted(rules))


def _named(kind: type[NamedT], text: str, what: str) -> NamedT:
    for item in kind:
        if item.value.lower() == text.lower():
            return item
    known = ", ".join(item.value for item in kind)
    raise AccessError(f"{_short(text)} is no {what}: take one of {known}.")


def _source(text: str) -> str:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise AccessError(f"{_short(text)} is no IP address and no network.") from error
    return str(network)


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")
