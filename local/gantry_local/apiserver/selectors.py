"""Label and field selectors: parsing and matching."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gantry_local.apiserver.errors import bad_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gantry_local.apiserver.kinds import ResourceType

_KEY = r"(?:[a-z0-9.-]+/)?[A-Za-z0-9][A-Za-z0-9_.-]*"
_SET_TERM = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUALITY_TERM = re.compile(rf"({_KEY})\s*(=|==|!=)\s*([A-Za-z0-9_.-]*)")
_EXISTS_TERM = re.compile(rf"(!?)\s*({_KEY})")
_FIELD_TERM = re.compile(r"([A-Za-z0-9.\[\]/_-]+?)(!=|==|=)(.*)")

_METADATA_FIELDS: Final = frozenset({"metadata.name", "metadata.namespace"})
_FIELDS: Final[dict[tuple[str, str], frozenset[str]]] = {
    ("", "pods"): frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
        }
    ),
    ("", "namespaces"): frozenset({"status.phase"}),
    ("", "secrets"): frozenset({"type"}),
    ("", "services"): frozenset({"spec.clusterIP", "spec.type"}),
    ("", "events"): frozenset(
        {
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.uid",
            "reason",
            "type",
        }
    ),
}


class Requirement(msgspec.Struct, frozen=True):
    """One term over labels; ``operator`` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy the term (absent keys satisfy NotIn, as in Kubernetes)."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


class FieldTerm(msgspec.Struct, frozen=True):
    """One term over a field's text; absent fields are the empty text."""

    path: tuple[str, ...]
    value: str
    equal: bool

    def matches(self, obj: dict[str, Any]) -> bool:
        """Whether the object satisfies the term."""
        found: Any = obj
        for step in self.path:
            found = found.get(step) if isinstance(found, dict) else None
        return (("" if found is None else str(found)) == self.value) is self.equal


class Selector(msgspec.Struct, frozen=True):
    """Label and field terms together; no terms match everything."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    def matches(self, obj: dict[str, Any]) -> bool:
        """Whether the object satisfies every term."""
        if not self.labels and not self.fields:
            return True
        labels = obj.get("metadata", {}).get("labels") or {}
        return all(term.matches(labels) for term in self.labels) and all(
            term.matches(obj) for term in self.fields
        )


def parse_selector(resource: ResourceType, labels: str, fields: str) -> Selector:
    """The selector of a list or watch request; raises 400 naming the term."""
    return Selector(parse_labels(labels), _parse_fields(resource, fields))


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """``a=b,c!=d,e in (f,g),!h`` as terms."""
    return tuple(_label_term(part) for part in _split(text))


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    parts = re.split(r",(?![^()]*\))", text)
    return [part.strip() for part in parts if part.strip()]


def _label_term(text: str) -> Requirement:
    if found := _SET_TERM.fullmatch(text):
        values = tuple(value.strip() for value in found.group(3).split(","))
        return Requirement(found.group(1), "In" if found.group(2) == "in" else "NotIn", values)
    if found := _EQUALITY_TERM.fullmatch(text):
        operator = "NotIn" if found.group(2) == "!=" else "In"
        return Requirement(found.group(1), operator, (found.group(3),))
    if found := _EXISTS_TERM.fullmatch(text):
        return Requirement(found.group(2), "DoesNotExist" if found.group(1) else "Exists")
    raise bad_request(f"unable to parse requirement: found {text!r}")


def _parse_fields(resource: ResourceType, text: str) -> tuple[FieldTerm, ...]:
    return tuple(_field_term(resource, part) for part in text.split(",") if part)


def _field_term(resource: ResourceType, text: str) -> FieldTerm:
    found = _FIELD_TERM.fullmatch(text)
    if found is None:
        raise bad_request(f"invalid selector: {text!r}; can't understand {text!r}")
    path = found.group(1)
    if path not in _METADATA_FIELDS | _FIELDS.get(resource.key, frozenset()):
        raise bad_request(f"field label not supported: {path}")
    return FieldTerm(tuple(path.split(".")), found.group(3), found.group(2) != "!=")


def from_label_selector(selector: dict[str, Any] | None) -> tuple[Requirement, ...] | None:
    """The terms of a ``LabelSelector`` object; None, which selects nothing, for an absent one."""
    if selector is None:
        return None
    terms = [Requirement(k, "In", (v,)) for k, v in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or []:
        values = tuple(expression.get("values") or ())
        terms.append(Requirement(expression["key"], expression["operator"], values))
    return tuple(terms)


def to_text(selector: dict[str, Any]) -> str:
    """A ``LabelSelector`` object in the text form that ``/scale`` reports."""
    terms: list[str] = []
    for term in sorted(from_label_selector(selector) or (), key=lambda t: t.key):
        match term.operator:
            case "In" if len(term.values) == 1:
                terms.append(f"{term.key}={term.values[0]}")
            case "In" | "NotIn":
                terms.append(f"{term.key} {term.operator.lower()} ({','.join(term.values)})")
            case "Exists":
                terms.append(term.key)
            case _:
                terms.append(f"!{term.key}")
    return ",".join(terms)
