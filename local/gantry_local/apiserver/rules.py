"""``x-kubernetes-validations``: compiled onto a schema at registration, run on every write.

The language is the library's, Google's own. A real API server knows the type of ``self``, the
library does not, so fields that rules name are looked up in the schema here. Registration refuses
a CRD with a rule that cannot be evaluated, and what our own rules do not use; nothing is skipped
in silence. Transition rules (they mention ``oldSelf``) run only where an old value can be matched:
not for new values, not below atomic lists or sets, where the real API server refuses them too.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from cel_expr_python import cel

from gantry_local.apiserver.schema import Schema
from gantry_local.apiserver.validation import Cause, invalid

_SUPPORTED_KEYS = frozenset({"rule", "message"})
_ENVIRONMENT = cel.NewEnv(variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN})
_LITERAL = re.compile(r"'[^']*'|\"[^\"]*\"")
_PATH = re.compile(r"\b(?:self|oldSelf)((?:\.\w+)+)\b(?!\()")


class RuleError(Exception):
    """A rule that cannot be honoured here."""


class CompiledRule(msgspec.Struct, frozen=True):
    """One compiled rule."""

    text: str
    program: Any
    message: str
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
        Cause("FieldValueInvalid", path, f'Invalid value: "{schema.type}": {why}')
        for rule in schema.rules
        if (why := _violated(rule, value, old))
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


def _violated(rule: CompiledRule, value: Any, old: Any) -> str:
    if rule.transition and old is None:
        return ""
    found = rule.program.eval(data={"self": value, "oldSelf": old})
    if found.type() == cel.Type.ERROR:
        return f"{found.plain_value()} evaluating rule: {rule.message or rule.text}"
    return "" if found.plain_value() is True else rule.message or f"failed rule: {rule.text}"


def _attach(
    schema: Schema, self_type: Schema, path: str, *, comparable: bool, problems: list[Cause]
) -> bool:
    """Compile this node's rules and those below; returns whether there are any."""
    compiled: list[CompiledRule] = []
    for index, raw in enumerate(schema.raw.get("x-kubernetes-validations", ())):
        try:
            compiled.append(_compile(raw, self_type, comparable=comparable))
        except RuleError as error:
            where = f"{path}.x-kubernetes-validations[{index}].rule"
            problems.append(invalid(where, raw, f"compilation failed: {error}"))
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


def _compile(raw: Any, self_type: Schema, *, comparable: bool) -> CompiledRule:
    text = raw.get("rule") if isinstance(raw, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise RuleError("a rule needs the field 'rule'")
    if unknown := sorted(raw.keys() - _SUPPORTED_KEYS):
        raise RuleError(f"'{unknown[0]}' is not supported by gantry local")
    try:
        program = _ENVIRONMENT.compile(text)
    except RuntimeError as error:  # several lines, of which the first says what is wrong
        raise RuleError(str(error).partition("\n")[0]) from error
    if program.return_type() not in (cel.Type.BOOL, cel.Type.DYN):
        raise RuleError(f"a rule must evaluate to a bool, not {program.return_type().name()}")
    bare = _LITERAL.sub("''", text)
    for path in _PATH.finditer(bare):
        _look_up(path.group(1), self_type)
    transition = re.search(r"\boldSelf\b", bare) is not None
    if transition and not comparable:
        raise RuleError("oldSelf cannot be used on the uncorrelatable portion of the schema")
    return CompiledRule(text.strip(), program, (raw.get("message") or "").strip(), transition)


def _look_up(path: str, schema: Schema) -> None:
    for name in path.split(".")[1:]:
        if not schema.knows(name):
            raise RuleError(f"undefined field '{name}'")
        schema = schema.child(name)


def _root_type(schema: Schema) -> Schema:
    """The root as rules see it: of the metadata only name and generateName."""
    text = Schema({"type": "string"})
    metadata = Schema({"type": "object"})
    metadata.properties = {"name": text, "generateName": text}
    root = Schema({**schema.raw, "properties": {}, "additionalProperties": False})
    root.properties = {**schema.properties, "metadata": metadata}
    return root
