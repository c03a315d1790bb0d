"""The decision whether a user may do what a request needs.

A request comes with *demands*: a resource, and actions of which one has to be allowed there. Each
is judged by the user's own rules, in upstream's order: custom rules first, and default ones only
where no custom one fits; of those that fit the one that names the resource counts before prefixes,
longer prefixes before shorter ones, a prefix before all of a kind, and that before ``*``. Of two
that are equally near, the one that denies counts. Where none fits, the request is denied.

A super user is judged by nothing: it may do everything. Only a super user may do what no row of the
table of demands describes.
"""

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from gantry_protocol.access.rules import ANY, Action, Decision, Policy, ResourceKind, Rule, User
from gantry_protocol.names import LONG_TOPIC_CHARS_MAX

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Demand(NamedTuple):
    """One thing that a request needs.

    Attributes:
        kind: of the resource.
        name: of it; None: all of this kind.
        actions: one of them has to be allowed.
    """

    kind: ResourceKind
    name: str | None
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        """As people write it."""
        name = ANY if self.name is None else self.name[:LONG_TOPIC_CHARS_MAX]  # anybody's words
        return f"{' or '.join(self.actions)} on {self.kind}:{name}"


class Judge:
    """The rules of one user, in the order in which they count."""

    def __init__(self, user: User) -> None:
        """They are read once."""
        self._rules = sorted(map(_Compiled, user.rules), key=lambda rule: rule.order)
        self._asks_source = any(rule.networks for rule in self._rules)

    def refused(self, demands: Iterable[Demand], source: str) -> Demand | None:
        """The first demand that is not allowed to who comes from ``source``; None if all are."""
        address = _address(source) if self._asks_source else None
        for demand in demands:
            if not self._allows(demand, address):
                return demand
        return None

    def _allows(self, demand: Demand, address: Address | None) -> bool:
        for rule in self._rules:
            if rule.fits(demand, address):
                return rule.allows
        return False


class _Compiled:
    """One rule, ready to be compared.

    Attributes:
        order: the smaller counts first.
        networks: from which it counts; none means all.
        allows: what it decides.
    """

    __slots__ = ("_actions", "_is_prefix", "_kind", "_name", "allows", "networks", "order")

    def __init__(self, rule: Rule) -> None:
        kind, _, pattern = rule.resource.partition(":")
        self._kind = None if rule.resource == ANY else kind
        self._is_prefix = pattern.endswith(ANY) or rule.resource == ANY
        self._name = pattern.removesuffix(ANY)
        actions = frozenset(rule.actions)
        self._actions = frozenset(Action) if Action.ALL in actions else actions
        self.networks: tuple[Network, ...] = tuple(map(ipaddress.ip_network, rule.sources))
        self.allows = rule.decision == Decision.ALLOW
        self.order = (
            rule.policy != Policy.CUSTOM,
            self._kind is None,
            self._is_prefix,
            -len(self._name),
            self.allows,
        )

    def fits(self, demand: Demand, address: Address | None) -> bool:
        """Whether it says anything about ``demand``."""
        if self._kind is not None and self._kind != demand.kind:
            return False
        if demand.name is None:
            if self._name and self.allows:  # says nothing about all; one that is denied does
                return False
        elif not (
            demand.name.startswith(self._name) if self._is_prefix else demand.name == self._name
        ):
            return False
        if self._actions.isdisjoint(demand.actions):
            return False
        return not self.networks or (
            address is not None and any(address in network for network in self.networks)
        )


def _address(source: str) -> Address | None:
    try:
        address = ipaddress.ip_address(source)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
