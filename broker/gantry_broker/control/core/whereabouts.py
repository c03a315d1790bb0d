"""Whom to dial: the controllers that the settings name, and what the quorum has said since.

The members of a quorum change while brokers run, so each answer to GetMetadataInfo tells where all
of them are. Anybody's word adds members, since the leader may be one that is not known yet. Only
the leader's takes some away: others may be behind, or may have been removed themselves.

Rule protected: a list counts only if it has an address that is known already, spelled the same.
Controllers that call themselves by other names than the settings do (another network, another
make, whose lists name other ports) are dialled as the settings say, and nowhere else.
"""

import re
from collections.abc import Iterator

import msgspec

MEMBERS_MAX = 32
"""As many as a quorum may have; of a longer list the rest is left out."""
_MEMBER = re.compile(r"n\d{1,9}:(.{1,300}:\d{1,5})")
_POD = re.compile(r"(?P<set>.+)-\d+\.(?P<service>(?P=set)\..+)")


class Whereabouts(msgspec.Struct, frozen=True):
    """The controllers as one process knows them.

    Attributes:
        named: ``host:port`` of those in the settings.
        told: of the members, as the quorum said last; empty before it said anything.
    """

    named: tuple[str, ...]
    told: tuple[str, ...] = ()

    @property
    def dialled(self) -> tuple[str, ...]:
        """Those to be connected to."""
        return self.told or self.named

    def heard(self, members: str, *, leads: bool) -> "Whereabouts":
        """After a controller said who takes part: ``n1:host:port;n2:…``."""
        said = tuple(_read(members))[:MEMBERS_MAX]
        if not {*self.dialled, *self.named}.intersection(said):
            return self
        told = said if leads else tuple(dict.fromkeys((*self.dialled, *said)))[:MEMBERS_MAX]
        return msgspec.structs.replace(self, told=told)

    def lost(self) -> "Whereabouts":
        """After nobody could be reached for a while: those in the settings may be back."""
        everybody = tuple(dict.fromkeys((*self.named, *self.dialled)))
        return msgspec.structs.replace(self, told=everybody[:MEMBERS_MAX])

    def services(self) -> tuple[str, ...]:
        """Names under which any pod of their StatefulSets is found, where they are such pods.

        ``q-0.q.ns.svc`` is a pod behind the headless Service ``q.ns.svc``, which has the addresses
        of all pods that there are, those included that were not there when the settings were made.
        """
        found = []
        for address in self.named:
            host, _, port = address.rpartition(":")
            pod = _POD.fullmatch(host)
            if pod is not None:
                found.append(f"{pod['service']}:{port}")
        return tuple(dict.fromkeys(found))


def _read(members: str) -> Iterator[str]:
    for part in members.split(";"):
        match = _MEMBER.fullmatch(part.strip())
        if match is not None:
            yield match[1]
