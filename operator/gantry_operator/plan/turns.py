"""Whose turn it is to get a new default image: a few groups of a fleet at a time.

A new operator brings a new default image, and every group whose spec names none would begin to roll
in the same second. One that is bad, or merely slow to start, would be everywhere before anybody saw
it. So a group keeps the image that its StatefulSet has until it is its turn.

The turns follow from what exists, not from anything remembered: a group that has the new image and
is not well yet is under way, those with another one stand in line. So a restart of the operator, or
another one that takes over, goes on where the last one stopped. First in line are groups that are
not well, since the new image may be what mends them; then quorums, broker groups and fronts, by
name.

Rule protected: only the roll to a default image waits. Everything else that a group needs, a
repair, a change of its spec or its deletion, waits for nobody. What is stuck under the new image
keeps that image from the others until a person looks: `spec.image` or `spec.paused` takes a group
out of the line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gantry_operator.plan.actions import CheckAgain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_operator.plan.actions import Action

ORDER = ("ControllerGroup", "BrokerGroup", "FrontGroup")
"""Kinds in the order of their turns."""
FIRST_CHECK_S = 2.0
"""How often the first in line looks; each one behind looks as much less often."""
LAST_CHECK_S = 300.0


class Place(msgspec.Struct, frozen=True):
    """A group without an image of its own, in the fleet.

    Attributes:
        kind, namespace, name: which.
        image: what its StatefulSet or Deployment has.
        well: every pod is made from the present template and Ready.
        rolls: it may be restarted at all: neither paused nor being deleted.
        usable: its objects can be written, as far as is known; who cannot use a turn gets none.
    """

    kind: str
    namespace: str
    name: str
    image: str
    well: bool
    rolls: bool = True
    usable: bool = True

    @property
    def id(self) -> tuple[str, str, str]:
        """Kind, namespace and name."""
        return self.kind, self.namespace, self.name


def with_check(wait: ImageWait | RollTurn | None, actions: list[Action]) -> list[Action]:
    """Adds the look at the line to a plan, unless it looks again sooner anyway."""
    planned = [action.after_s for action in actions if isinstance(action, CheckAgain)]
    if wait is None or min(planned, default=wait.check_after_s + 1) <= wait.check_after_s:
        return actions
    others = [action for action in actions if not isinstance(action, CheckAgain)]
    return [*others, CheckAgain(after_s=wait.check_after_s)]


class Line(msgspec.Struct, frozen=True):
    """The fleet at one moment.

    Attributes:
        under_way: groups that have the default image and are not well yet.
        waiting: groups that have another one, in the order of their turns.
        turns: how many of those may begin now.
    """

    under_way: tuple[tuple[str, str, str], ...]
    waiting: tuple[tuple[str, str, str], ...]
    turns: int

    def position(self, place: tuple[str, str, str]) -> int:
        """The number of groups before this one; all of them if it does not stand in line."""
        return self.waiting.index(place) if place in self.waiting else len(self.waiting)

    def has_turn(self, place: tuple[str, str, str]) -> bool:
        """Whether a group may get the default image now."""
        return place in self.waiting[: self.turns]


class ImageWait(msgspec.Struct, frozen=True):
    """A group that keeps its image for now.

    Attributes:
        image: what it would get.
        at_a_time: how many groups get it at a time.
        position: how many are before it.
    """

    image: str
    at_a_time: int
    position: int

    @property
    def check_after_s(self) -> float:
        """The time to look again; the sum over a long line grows with its logarithm only."""
        return min(FIRST_CHECK_S * (self.position + 1), LAST_CHECK_S)

    def describe(self, running: str) -> str:
        """For people; without the position, which changes with each group that is done."""
        groups = "1 group gets" if self.at_a_time == 1 else f"{self.at_a_time} groups get"
        return (
            f"Runs {running}, and waits for its turn to get {self.image}, the operator's image: "
            f"{groups} it at a time."
        )


class RollTurn(msgspec.Struct, frozen=True):
    """The turn of a group to restart its pods, where groups take turns for any change.

    Attributes:
        at_a_time: how many groups roll at a time.
        waiting: how many wait, this one among them, as of the last look.
        given: it is its turn.
    """

    at_a_time: int
    waiting: int
    given: bool

    @property
    def check_after_s(self) -> float:
        """The time to look again; a long line looks as often as a short one, all of it together."""
        return min(FIRST_CHECK_S * self.waiting, LAST_CHECK_S)


def line_up(fleet: Iterable[Place], default_image: str, at_a_time: int) -> Line:
    """The groups under way and those that are next.

    Args:
        fleet: groups whose spec names no image and that have a StatefulSet.
        default_image: what they are to get.
        at_a_time: how many may be under way, at least 1.
    """
    groups = [place for place in fleet if place.rolls]
    under_way = [p.id for p in groups if p.image == default_image and not p.well]
    waiting = [p for p in groups if p.image != default_image and p.usable]
    waiting.sort(key=lambda p: (p.well, ORDER.index(p.kind), p.namespace, p.name))
    return Line(
        under_way=tuple(sorted(under_way)),
        waiting=tuple(place.id for place in waiting),
        turns=max(0, at_a_time - len(under_way)),
    )
