"""The name of a member, as its certificate has it: a URI among the subject's alternative names.

::

    gantry://DOMAIN/controller
    gantry://DOMAIN/broker/CLUSTER/GROUP
    gantry://DOMAIN/front/CLUSTER

DOMAIN is whatever the members of one quorum, and nobody else, have in common. A process takes it
from its own certificate and believes no other. The last part may end in ``*``, which stands for
anything: a process that hosts many groups has one certificate. Pure.

What it refuses: a name that is written otherwise. A certificate that holds one is no good at all,
since nobody can tell what was meant.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, Self
from urllib.parse import quote, unquote

SCHEME = "gantry://"
ANY = "*"
NAMES_MAX = 1000  # in one certificate, each of a group


class MemberKind(StrEnum):
    """The kind of process that a member is."""

    CONTROLLER = "controller"
    BROKER = "broker"
    FRONT = "front"


_PARTS = {MemberKind.CONTROLLER: 0, MemberKind.FRONT: 1, MemberKind.BROKER: 2}  # after the kind


class MemberName(NamedTuple):
    """A member whatever its domain: one that is expected somewhere, or that a process is.

    Attributes:
        cluster: empty for a controller, and where any will do.
        group: the same, and for a front.
    """

    kind: MemberKind
    cluster: str = ""
    group: str = ""

    def in_domain(self, domain: str) -> str:
        """The URI."""
        parts = (self.cluster, self.group)[: _PARTS[self.kind]]
        return "/".join((f"{SCHEME}{domain}/{self.kind}", *(quote(part, "*") for part in parts)))


class Names(NamedTuple):
    """The names in one certificate; all are of one domain."""

    domain: str
    members: tuple[MemberName, ...]

    @classmethod
    def of(cls, uris: Iterable[str]) -> Self | None:
        """The names among ``uris``; None if none is ours.

        Raises:
            ValueError: one of ours is written in another way, or they are of several domains.
        """
        ours = [uri for uri in uris if uri.startswith(SCHEME)]
        if not ours:
            return None
        if len(ours) > NAMES_MAX:
            raise ValueError(f"it has {len(ours)} names; more than {NAMES_MAX} are a mistake")
        parsed = [_parse(uri) for uri in ours]
        domains = {domain for domain, _ in parsed}
        if len(domains) > 1:
            raise ValueError(f"its names are of several domains: {', '.join(sorted(domains))}")
        return cls(parsed[0][0], tuple(member for _, member in parsed))

    def has(self, wanted: MemberName) -> bool:
        """Whether one of them is ``wanted``, or of its kind where parts of that are empty."""
        return any(_fits(member, wanted) for member in self.members)

    def only(self, member: MemberName) -> Self:
        """One of them, by itself."""
        return type(self)(self.domain, (member,))

    def __str__(self) -> str:
        """The first ones, as URIs."""
        some = [member.in_domain(self.domain) for member in self.members[:3]]
        return ", ".join(some) + (", …" if len(self.members) > len(some) else "")


def _fits(member: MemberName, wanted: MemberName) -> bool:
    return (
        member.kind is wanted.kind
        and _is_named(member.cluster, wanted.cluster)
        and _is_named(member.group, wanted.group)
    )


def _is_named(pattern: str, name: str) -> bool:
    if not name or pattern == name:
        return True
    return pattern.endswith(ANY) and name.startswith(pattern.removesuffix(ANY))


def _parse(uri: str) -> tuple[str, MemberName]:
    domain, *parts = uri.removeprefix(SCHEME).split("/")
    kind = next((item for item in MemberKind if parts and parts[0] == item), None)
    named = [unquote(part) for part in parts[1:]]
    if (
        kind is None
        or not domain
        or not all(named)
        or len(named) != _PARTS[kind]
        or any(ANY in part.removesuffix(ANY) for part in named)
        or (len(named) > 1 and ANY in named[0])
    ):
        raise ValueError(
            f"its name {uri[:200]!r} is none of {SCHEME}DOMAIN/controller, "
            f"{SCHEME}DOMAIN/broker/CLUSTER/GROUP and {SCHEME}DOMAIN/front/CLUSTER"
        )
    return domain, MemberName(kind, *named)
