"""Findings of checks, and the case that a check looks at; pure."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from gantry_operator import names
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    CLAIM,
    CONTROLLER_GROUP,
    FRONT_GROUP,
    POD,
    Kind,
)

if TYPE_CHECKING:
    from gantry_operator.api.protocol import Body
    from gantry_operator.support.material import Material

RECENT: Final = dt.timedelta(hours=1)
"""An event or an end of a container counts so long."""
COMPONENTS: Final = {
    BROKER_GROUP.kind: names.BROKER,
    CONTROLLER_GROUP.kind: names.CONTROLLER,
    FRONT_GROUP.kind: names.FRONT,
}


class Level(StrEnum):
    """The weight of a finding."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Diagnosis(msgspec.Struct, frozen=True):
    """A finding of a check.

    Attributes:
        check: its name.
        message: what is so.
        todo: what to do about it; empty if nothing.
    """

    level: Level
    check: str
    message: str
    todo: str = ""


class Case(msgspec.Struct, frozen=True):
    """A group, and everything that was read around it.

    Attributes:
        now: by the clock of whoever looks.
    """

    material: Material
    kind: Kind
    body: Body
    now: dt.datetime

    @property
    def name(self) -> str:
        """Of the group."""
        return str(self.body["metadata"]["name"])

    @property
    def called(self) -> str:
        """The group, for people."""
        return f"{self.kind.kind} {self.name}"

    @property
    def short(self) -> str:
        """The group, as an argument of kubectl."""
        return f"{self.kind.kind.lower()} {self.name}"

    @property
    def spec(self) -> Body:
        """Its wish."""
        return self.body.get("spec") or {}

    @property
    def status(self) -> Body:
        """The operator's word."""
        return self.body.get("status") or {}

    @property
    def cluster(self) -> str:
        """The name of its quorum."""
        if self.kind == CONTROLLER_GROUP:
            return self.name
        return str((self.spec.get("controllerRef") or {}).get("name") or "")

    @property
    def asleep(self) -> bool:
        """Whether its pods are to be stopped."""
        return bool(self.spec.get("hibernated"))

    def condition(self, name: str) -> Body:
        """A condition; empty if there is none."""
        found = [one for one in self.status.get("conditions") or () if one.get("type") == name]
        return found[0] if found else {}

    def is_so(self, name: str) -> bool:
        """Whether a condition is True."""
        return self.condition(name).get("status") == "True"

    @property
    def replicas(self) -> int:
        """The number that is wished."""
        default = {CONTROLLER_GROUP.kind: 3, FRONT_GROUP.kind: 2}.get(self.kind.kind, 3)
        return int(self.spec.get("replicas") or default)

    def pods(self) -> list[Body]:
        """Its pods."""
        return self.labeled(POD)

    def claims(self) -> list[Body]:
        """The claims of its volumes."""
        return self.labeled(CLAIM)

    def labeled(self, kind: Kind) -> list[Body]:
        """Objects of a kind that are the group's."""
        wanted = names.selector(COMPONENTS[self.kind.kind], self.name)
        return [
            body
            for body in self.material.of(kind)
            if wanted.items() <= (body["metadata"].get("labels") or {}).items()
        ]

    def age(self, stamp: object) -> dt.timedelta:
        """The time since something was; none at all if that is not known."""
        found = moment(stamp)
        return self.now - found if found is not None else dt.timedelta(0)


def moment(stamp: object) -> dt.datetime | None:
    """A time as the API server writes it."""
    if not isinstance(stamp, str):
        return None
    try:
        found = dt.datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


def told(age: dt.timedelta) -> str:
    """A time for people: 40 s, 7 min, 3 h, 2 d."""
    seconds = max(0, int(age.total_seconds()))
    for unit, length, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < most * length:
            return f"{seconds // length} {unit}"
    return f"{seconds // 86_400} d"


def listed(parts: list[str], most: int = 5) -> str:
    """The first few, and how many more there are."""
    more = len(parts) - most
    return ", ".join(parts[:most]) + (f" and {more} more" if more > 0 else "")


def ok(check: str, message: str) -> Diagnosis:
    """All is well."""
    return Diagnosis(Level.OK, check, message)


def warn(check: str, message: str, todo: str) -> Diagnosis:
    """It serves, and should not stay so."""
    return Diagnosis(Level.WARN, check, message, todo)


def fail(check: str, message: str, todo: str) -> Diagnosis:
    """It does not do what it should."""
    return Diagnosis(Level.FAIL, check, message, todo)
