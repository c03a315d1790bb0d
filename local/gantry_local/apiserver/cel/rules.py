"""``x-kubernetes-validations``: attached to a schema at registration, run on every write.

Registration refuses a CRD with a rule that cannot be evaluated here; nothing is skipped in silence.
Transition rules (they mention ``oldSelf``) run only where an old value can be matched: not for new
values, not below atomic lists or sets, where the real API server refuses them too.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gantry_local.apiserver.cel import check, evaluate, parser
from gantry_local.apiserver.cel.lexer import CelError
from gantry_local.apiserver.schema import Schema
from gantry_local.apiserver.validation import Cause

_REASONS = frozenset(
    {"FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"}
)
_SUPPORTED_KEYS = frozenset({"rule", "message", "messageExpression", "reason", "fieldPath"})
_PATH_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\['([^']+)'\]")


class Rule(msgspec.Struct, frozen=True):
    """One compiled rule."""

    text: str
    tree: parser.Node
    message: str
    message_tree: parser.Node | None
    reason: str
    suffix: str
    transition: bool


def attach(schema: Schema) -> list[Cause]:
    """Compile every rule of a CRD's root schema onto its nodes; returns what is wrong with them."""
    problems: list[Cause] = []
    _attach(schema, _root_type(schema), "", comparable=True, problems=problems)
    return problems


def run(value: Any, old: Any, schema: Schema, path: str = "") -> list[Cause]:
    """Causes from every rule at and below ``path``; ``old`` is None when there is no old value."""
    if not schema.ruled or value is None:
        return []
    causes = [
        cause
        for rule in schema.rules
        if (cause := _judge(rule, value, old, schema, path)) is not None
    ]
    if isinstance(value, dict):
        for key, item in value.items():
            before = old.get(key) if isinstance(old, dict) else None
            below = _below(path, key, declared=key in schema.properties)
            causes += run(item, before, schema.child(key), below)
    elif isinstance(value, list):
        previous = _by_key(old, schema)
        for index, item in enumerate(value):
            before = previous.get(_key(item, schema)) if previous else None
            causes += run(item, before, schema.element, f"{path}[{index}]")
    return causes


def _below(path: str, key: str, *, declared: bool) -> str:
    if not declared:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _key(item: Any, schema: Schema) -> tuple[Any, ...]:
    return tuple(str(item.get(name)) for name in schema.map_keys) if isinstance(item, dict) else ()


def _by_key(old: Any, schema: Schema) -> dict[tuple[Any, ...], Any]:
    if schema.list_type != "map" or not isinstance(old, list):
        return {}
    return {_key(item, schema): item for item in old}


def _judge(rule: Rule, value: Any, old: Any, schema: Schema, path: str) -> Cause | None:
    if rule.transition and old is None:
        return None
    scope = {"self": value, "oldSelf": old}
    try:
        if evaluate.evaluate(rule.tree, scope) is True:
            return None
        message = _message(rule, scope)
    except CelError as error:
        message = f"{error} evaluating rule: {rule.message or rule.text}"
    return _cause(rule, message, schema, path + rule.suffix if path else rule.suffix.lstrip("."))


def _message(rule: Rule, scope: dict[str, Any]) -> str:
    if rule.message_tree is not None:
        try:
            text = evaluate.evaluate(rule.message_tree, scope)
        except CelError:
            text = None
        if isinstance(text, str) and text.strip() and "\n" not in text:
            return text
    return rule.message or f"failed rule: {rule.text}"


def _cause(rule: Rule, message: str, schema: Schema, path: str) -> Cause:
    texts = {
        "FieldValueForbidden": f"Forbidden: {message}",
        "FieldValueRequired": f"Required value: {message}",
        "FieldValueDuplicate": f'Duplicate value: "{schema.type}"',
    }
    text = texts.get(rule.reason, f'Invalid value: "{schema.type}": {message}')
    return Cause(rule.reason, path, text)


def _attach(
    schema: Schema, self_type: Schema, path: str, *, comparable: bool, problems: list[Cause]
) -> bool:
    """Compile this node's rules and those below; returns whether there are any."""
    compiled: list[Rule] = []
    for index, raw in enumerate(schema.raw.get("x-kubernetes-validations", ())):
        where = f"{path}.x-kubernetes-validations[{index}]"
        try:
            compiled.append(_compile(raw, self_type, comparable=comparable))
        except CelError as error:
            rule = raw.get("rule") if isinstance(raw, dict) else raw
            message = f"Invalid value: {rule!r}: compilation failed: {error}"
            problems.append(Cause("FieldValueInvalid", f"{where}.rule", message))
    schema.rules = tuple(compiled)
    below = False
    for key, child in schema.properties.items():
        if path == "" and key in {"apiVersion", "kind", "metadata"}:
            continue
        inner = f"{path}.properties[{key}]"
        below |= _attach(child, child, inner, comparable=comparable, problems=problems)
    if schema.additional is not None:
        inner = f"{path}.additionalProperties"
        kept = comparable and not schema.atomic
        child = schema.additional
        below |= _attach(child, child, inner, comparable=kept, problems=problems)
    if schema.items is not None:
        kept = comparable and schema.list_type == "map"
        child = schema.items
        below |= _attach(child, child, f"{path}.items", comparable=kept, problems=problems)
    schema.ruled = below or bool(compiled)
    return schema.ruled


def _compile(raw: Any, self_type: Schema, *, comparable: bool) -> Rule:
    if not isinstance(raw, dict) or not isinstance(raw.get("rule"), str) or not raw["rule"].strip():
        raise CelError("a rule needs the field 'rule'")
    unknown = sorted(raw.keys() - _SUPPORTED_KEYS)
    if unknown:
        raise CelError(f"'{unknown[0]}' is not supported by gantry local")
    tree = parser.parse(raw["rule"])
    env: dict[str, check.Type] = {"self": self_type, "oldSelf": self_type}
    check.check_bool(tree, env)
    transition = _mentions(tree, "oldSelf")
    if transition and not comparable:
        raise CelError("oldSelf cannot be used on the uncorrelatable portion of the schema")
    reason = raw.get("reason", "FieldValueInvalid")
    if reason not in _REASONS:
        raise CelError(f"unknown reason {reason!r}")
    message_tree = None
    if raw.get("messageExpression"):
        message_tree = parser.parse(raw["messageExpression"])
        check.check(message_tree, env)
    return Rule(
        text=raw["rule"].strip(),
        tree=tree,
        message=(raw.get("message") or "").strip(),
        message_tree=message_tree,
        reason=reason,
        suffix=_suffix(raw.get("fieldPath", ""), self_type),
        transition=transition,
    )


def _mentions(node: Any, name: str) -> bool:
    if isinstance(node, parser.Name):
        return node.name == name
    if isinstance(node, tuple):
        return any(_mentions(item, name) for item in node)
    if isinstance(node, msgspec.Struct):
        return any(_mentions(getattr(node, field), name) for field in node.__struct_fields__)
    return False


def _suffix(field_path: str, schema: Schema) -> str:
    """``.spec.x`` or ``['a-b']`` as appended to the reported path; every step must exist."""
    position, text, node = 0, "", schema
    while position < len(field_path):
        step = _PATH_STEP.match(field_path, position)
        name = (step.group(1) or step.group(2)) if step else ""
        if step is None or not node.knows(name):
            raise CelError(f"fieldPath {field_path!r} does not name a declared field")
        text += f".{name}"
        node = node.child(name)
        position = step.end()
    return text


def _root_type(schema: Schema) -> Schema:
    """The root as rules see it: of the metadata only name and generateName."""
    text = Schema({"type": "string"})
    metadata = Schema({"type": "object"})
    metadata.properties = {"name": text, "generateName": text}
    root = Schema({**schema.raw, "properties": {}, "additionalProperties": False})
    root.properties = {
        **schema.properties,
        "apiVersion": text,
        "kind": text,
        "metadata": metadata,
    }
    return root
