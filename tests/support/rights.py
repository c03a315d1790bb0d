"""The rights that the chart gives the operator, and those that it asks for.

As RBAC reads them: a request needs a rule with its verb, group and resource, or subresource, and
with its name where the rule names objects. An apply of an object that does not exist needs the verb
create besides patch. Some clusters ask for more: whoever makes an owner wait for an object
(`blockOwnerDeletion`) needs to be allowed to write the owner's finalizers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from aiohttp import web
from gantry_local.apiserver.bodies import APPLY
from gantry_local.apiserver.kinds import ResourceType
from gantry_local.apiserver.registry import Registry
from gantry_local.apiserver.routes import Target

TEMPLATES = Path(__file__).resolve().parents[2] / "charts" / "gantry" / "templates"
HOME = "{{ .Release.Namespace }}"
_MAKES = frozenset({"create", "update", "patch"})


class Right(NamedTuple):
    """What one rule allows with one resource.

    Attributes:
        resource: plural, with its subresource after a slash.
        name: of the only object; empty for all, `HOME` for the operator's namespace.
    """

    verb: str
    group: str
    resource: str
    name: str = ""


class Demand(NamedTuple):
    """A request, as rights are asked for it."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str


class Chart(NamedTuple):
    """The rights of the chart's Roles.

    Attributes:
        served: in the namespaces that the operator serves.
        home: in the one that it runs in.
    """

    served: frozenset[Right]
    home: frozenset[Right]


@cache
def chart() -> Chart:
    """As the templates have them."""
    helpers = (TEMPLATES / "_helpers.tpl").read_text("utf-8")
    roles = (TEMPLATES / "rbac.yaml").read_text("utf-8")
    (lease,) = re.findall(r"-lease\n  namespace.*?\nrules:\n(.*?)  \{\{- if", roles, re.DOTALL)
    home = [*_rights(lease), *_rights(_define(helpers, "gantry.home"))]
    return Chart(frozenset(_rights(_define(helpers, "gantry.rules"))), frozenset(home))


def _define(text: str, name: str) -> str:
    (found,) = re.findall(rf'define "{name}" -}}}}\n(.*?)\{{\{{- end', text, re.DOTALL)
    return str(found)


def _rights(text: str) -> Iterator[Right]:
    for rule in yaml.safe_load(text.replace(f"[{HOME}]", f"['{HOME}']")):
        assert rule.keys() <= {"apiGroups", "resources", "resourceNames", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Right(verb, group, resource, name)


class Rights:
    """One operator's, and what it asked for.

    Args:
        home: the namespace that it runs in.
        namespaces: those that it serves; empty means all.

    Attributes:
        used: the rights that a request needed.
        refused: requests that no right allows.
    """

    def __init__(self, home: str = "default", namespaces: tuple[str, ...] = ()) -> None:
        self._chart = chart()
        self._home = home
        self._namespaces = namespaces
        self.used: set[Right] = set()
        self.refused: list[Demand] = []

    def allows(self, demand: Demand) -> bool:
        """Whether a request is allowed; it is written down."""
        wanted = [Right(*demand[:3]), Right(*demand[:3], name=demand.name)]
        if demand.name == self._home:
            wanted.append(Right(*demand[:3], name=HOME))
        is_served = not self._namespaces or demand.namespace in self._namespaces
        found = {right for right in wanted if is_served and right in self._chart.served}
        if demand.namespace == self._home:
            found |= self._chart.home.intersection(wanted)
        self.used |= found
        if not found:
            self.refused.append(demand)
        return bool(found)


def demands(
    registry: Registry,
    resource: ResourceType,
    target: Target,
    verb: str,
    content_type: str,
    body: dict[str, Any],
) -> Iterator[Demand]:
    """The rights that a request needs, one after another."""
    plural = resource.plural
    place = target.namespace or ""
    if plural == "namespaces":
        place = target.name
    name = f"{plural}/{target.subresource}" if target.subresource else plural
    yield Demand(verb, resource.group, name, place, target.name)
    exists = registry.store.get(resource.key, (target.namespace or "", target.name)) is not None
    if verb == "patch" and content_type == APPLY and not target.subresource and not exists:
        yield Demand("create", resource.group, plural, place, target.name)
    owners = (body.get("metadata") or {}).get("ownerReferences") or ()
    for owner in owners if verb in _MAKES else ():
        kind = registry.catalogue.of_kind(owner["apiVersion"], owner["kind"])
        if owner.get("blockOwnerDeletion") and kind is not None:
            yield Demand("update", kind.group, f"{kind.plural}/finalizers", place, owner["name"])


async def demands_of(
    registry: Registry, request: web.Request, resource: ResourceType, target: Target, verb: str
) -> list[Demand]:
    """Those of a request over HTTP."""
    data = await request.read() if verb in _MAKES else b""
    body = json.loads(data) if data else {}
    return list(demands(registry, resource, target, verb, request.content_type, body))
