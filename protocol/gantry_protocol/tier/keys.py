"""Names of objects in the tier: one prefix per broker group, numbers that sort as text.

Rules protected: a name is read back exactly as it was written or refused (nothing is guessed from a
name of another form, so a stray object is never taken for ours); names of packs are unique per
attempt, because the nonce is; the pair is a folder, so what a fenced master left is one listing.

What it refuses: path tricks in names, numbers that are not in canonical form.
"""

import hashlib
import re
from typing import NamedTuple

from gantry_protocol.tier.damage import ForeignObject, NewerObject

MAX_OFFSET = 2**63 - 1
MAX_EPOCH = 9_999_999_999
MAX_INC = 99_999
CLASS_FOR_EVER = 9  # the only retention class so far

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_MAN = re.compile(r"man/([0-9]{20})\Z")
_PACK = re.compile(r"pack/([0-9]{10})\.([0-9]{5})/([0-9]{20})-([0-9]{20})-([0-9])-([0-9a-f]{32})\Z")
_LATER = ("snap/", "qtab/", "state/", "kidx/")
META = "meta.json"
_DIGEST_CHARS = 16
SHARED_UID_MAX_CHARS = 63 - 1 - _DIGEST_CHARS
"""Of a UID that groups share; behind it there is room for each of them."""


class Pair(NamedTuple):
    """A master epoch and the boot counter of the process that held it; ordered as a tuple."""

    epoch: int
    inc: int

    def __str__(self) -> str:
        return f"{self.epoch:010d}.{self.inc:05d}"


class PackKey(NamedTuple):
    """The name of a pack below its group's prefix."""

    pair: Pair
    lo: int
    hi: int
    cls: int
    nonce: str

    def __str__(self) -> str:
        return f"pack/{self.pair}/{self.lo:020d}-{self.hi:020d}-{self.cls}-{self.nonce}"


class ManKey(NamedTuple):
    """The name of a manifest version below its group's prefix."""

    v: int

    def __str__(self) -> str:
        return f"man/{self.v:020d}"


class MetaKey(NamedTuple):
    """The name of the object that says whose prefix it is."""

    def __str__(self) -> str:
        return META


class Shard(NamedTuple):
    """A broker group's place in a store.

    Attributes:
        cluster: name of the cluster.
        uid: UID of the BrokerGroup; a group that is made anew gets another.
    """

    cluster: str
    uid: str

    @property
    def prefix(self) -> str:
        """Everything of the group begins with this; it ends with a slash."""
        spread = hashlib.sha256(self.uid.encode()).hexdigest()[:4]
        return f"{self.cluster}/{spread}/{self.uid}/"

    def key(self, name: PackKey | ManKey | MetaKey | str) -> str:
        """The whole key of an object of the group."""
        return f"{self.prefix}{name}"


def shard(cluster: str, uid: str) -> Shard:
    """The place of a group.

    Raises:
        ValueError: says which of the two is no name.
    """
    for what, name in (("cluster", cluster), ("broker group UID", uid)):
        if not _NAME.match(name):
            raise ValueError(
                f"The {what} {name[:80]!r} cannot be part of a key: use 1 to 63 letters, digits, "
                f"dots, dashes and underscores, beginning with a letter or digit."
            )
    return Shard(cluster, uid)


def shared_uid(uid: str, group: str) -> str:
    """The name in the tier of one of the groups that share the UID ``uid``.

    It is ``UID.GROUP`` where that can be part of a key; otherwise a digest stands for the group,
    whose name is in ``meta.json``.
    """
    name = f"{uid}.{group}"
    if _NAME.match(name):
        return name
    return f"{uid}.{hashlib.sha256(group.encode()).hexdigest()[:_DIGEST_CHARS]}"


def place_at(cluster: str, spread: str, uid: str) -> Shard | None:
    """The group whose prefix the three folders are; None when they are nobody's."""
    if not (_NAME.match(cluster) and _NAME.match(uid)):
        return None
    place = Shard(cluster, uid)
    return place if place.prefix == f"{cluster}/{spread}/{uid}/" else None


def parse_name(name: str) -> PackKey | ManKey | MetaKey | None:
    """The name below a group's prefix, taken apart; None when it has no form of ours."""
    if found := _PACK.match(name):
        epoch, inc, lo, hi, cls = (int(part) for part in found.groups()[:5])
        key = PackKey(Pair(epoch, inc), lo, hi, cls, found.group(6))
        return key if lo < hi <= MAX_OFFSET else None
    if found := _MAN.match(name):
        v = int(found.group(1))
        return ManKey(v) if 1 <= v <= MAX_OFFSET else None
    return MetaKey() if name == META else None


def parse_key(place: Shard, key: str) -> PackKey | ManKey | MetaKey:
    """The whole key of an object of ``place``, taken apart.

    Raises:
        ForeignObject: it is not below the group's prefix, or has no form of ours.
        NewerObject: it is of a kind that is reserved for later.
    """
    name = key.removeprefix(place.prefix)
    if name == key:
        raise ForeignObject(key, 0, f"the key does not begin with {place.prefix}")
    if name.startswith(_LATER):
        raise NewerObject(key, 0, f"this version has no {name.split('/')[0]}/")
    parsed = parse_name(name)
    if parsed is None:
        raise ForeignObject(key, 0, "the key has no form of this format")
    if isinstance(parsed, PackKey) and parsed.cls != CLASS_FOR_EVER:
        raise NewerObject(key, 0, f"this version has no retention class {parsed.cls}")
    return parsed
