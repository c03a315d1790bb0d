"""All checks of a group, its quorum and its fronts, and of what is around them; pure.

The objects are those of a bundle (`material`), so that a bundle can say the same as the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gantry_protocol.errors import GantryError

from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, FRONT_GROUP, Kind
from gantry_operator.support import checks_around, checks_group
from gantry_operator.support.findings import Case, Diagnosis, Level, fail
from gantry_operator.support.group_logs import kind_and_name

if TYPE_CHECKING:
    import datetime as dt

    from gantry_operator.api.protocol import Body
    from gantry_operator.support.material import Material

_EXIT: Final = {Level.OK: 0, Level.WARN: 1, Level.FAIL: 2}
_GROUPS: Final = (BROKER_GROUP, CONTROLLER_GROUP, FRONT_GROUP)


def examine(material: Material, kind: Kind, body: Body, now: dt.datetime) -> list[Diagnosis]:
    """The findings about a group: of what is around it, of itself, and of what it needs."""
    case = Case(material, kind, body, now)
    found = [finding for check in checks_around.CHECKS for finding in check(case)]
    found += _of_group(case)
    for other in _GROUPS:
        if other in (kind, BROKER_GROUP):
            continue
        for one in material.of(other):
            needed = Case(material, other, one, now)
            if needed.cluster == case.cluster:
                found += _of_group(needed)
    if kind != CONTROLLER_GROUP and not _has_quorum(material, case.cluster):
        text = f"There is no ControllerGroup {case.cluster}, to which {case.called} refers."
        found.append(
            fail("quorum", text, "Create it; its volumes say who it was, if it was there.")
        )
    return found


def examine_all(material: Material, now: dt.datetime) -> list[Diagnosis]:
    """The findings about all groups of a namespace, each once."""
    found: dict[Diagnosis, None] = {}
    for kind in _GROUPS:
        for body in material.of(kind):
            found |= dict.fromkeys(examine(material, kind, body, now))
    return list(found)


def find_in(material: Material, given: str) -> tuple[Kind, Body]:
    """The group that is meant.

    Raises:
        GantryError: there is none, or more than one, or it cannot be read.
    """
    kind, name = kind_and_name(given)
    kinds = _GROUPS if kind is None else (kind,)
    found = [
        (one, body)
        for one in kinds
        for body in material.of(one)
        if body["metadata"]["name"] == name
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise GantryError(f"{name} is the name of several: give bg/{name}, cg/{name} or fg/{name}.")
    denied = [why for one in kinds if (why := material.denied(one))]
    if denied:
        raise GantryError(f"{given} in namespace {material.namespace}: {denied[0]}.")
    raise GantryError(
        f"There is no group {given} in namespace {material.namespace}; see kubectl gantry status."
    )


def _of_group(case: Case) -> list[Diagnosis]:
    return [finding for check in checks_group.CHECKS for finding in check(case)]


def _has_quorum(material: Material, name: str) -> bool:
    if material.denied(CONTROLLER_GROUP):
        return True
    return any(body["metadata"]["name"] == name for body in material.of(CONTROLLER_GROUP))


def exit_code(findings: list[Diagnosis]) -> int:
    """0 if all is ok, 1 if something warns, 2 if something fails."""
    return max((_EXIT[finding.level] for finding in findings), default=0)


def as_text(findings: list[Diagnosis]) -> str:
    """A line for each finding, and below it what to do."""
    width = max((len(finding.check) for finding in findings), default=0)
    lines: list[str] = []
    for one in findings:
        level = one.level.upper() if one.level == Level.FAIL else one.level
        lines.append(f"{level:4}  {one.check:{width}}  {_flat(one.message)}")
        if one.todo:
            lines.append(f"{'':4}  {'':{width}}  Do: {_flat(one.todo)}")
    return "".join(f"{line}\n" for line in lines)


def _flat(text: str) -> str:
    return " ".join(text.split())
