"""What is wrong with a rule before any object exists: names, fields, arities, obvious type errors.

A real API server type-checks rules when a CRD is registered. This check is weaker on types but
equally strict on names: an unknown variable, field or function is refused, never treated as absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_local.apiserver.cel.evaluate import OPERATORS
from gantry_local.apiserver.cel.functions import FUNCTIONS, METHODS
from gantry_local.apiserver.cel.lexer import CelError
from gantry_local.apiserver.cel.parser import (
    Call,
    Index,
    ListOf,
    Literal,
    Macro,
    MapOf,
    Name,
    Node,
    Select,
)
from gantry_local.apiserver.regex import PatternError, compile_pattern
from gantry_local.apiserver.schema import Schema
from gantry_local.apiserver.validation import json_type

if TYPE_CHECKING:
    from collections.abc import Mapping

Type = Schema | None
"""The schema a value is known to have; None where it is only known at run time (``dyn``)."""

BOOL = Schema({"type": "boolean"})
INT = Schema({"type": "integer"})
STRING = Schema({"type": "string"})
_TYPED_FORMATS = frozenset({"date-time", "date", "duration", "byte"})
_LOGICAL = frozenset({"&&", "||", "!_"})
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})
_BOOL_METHODS = frozenset(
    {"startsWith", "endsWith", "contains", "matches", "isSorted", "isGreaterThan", "isLessThan"}
)
_SCALARS = frozenset({"string", "integer", "number", "boolean"})


def check(node: Node, env: Mapping[str, Type]) -> Type:
    """The type of ``node``.

    Raises:
        CelError: something in it has no meaning here.
    """
    match node:
        case Literal(value):
            return None if value is None else Schema({"type": json_type(value)})
        case Name(name):
            if name not in env:
                raise CelError(f"undeclared reference to '{name}'")
            return env[name]
        case Select():
            return _select(node, env)
        case Index(operand, index):
            return _index(check(operand, env), check(index, env))
        case Call():
            return _call(node, env)
        case Macro():
            return _macro(node, env)
        case ListOf() | MapOf():
            _literal(node, env)
            return None


def _literal(node: ListOf | MapOf, env: Mapping[str, Type]) -> None:
    parts: list[Node] = []
    if isinstance(node, ListOf):
        parts += node.items
    else:
        for pair in node.items:
            parts += pair
    for part in parts:
        check(part, env)


def check_bool(node: Node, env: Mapping[str, Type]) -> None:
    """``check``, and the result must be able to be a boolean."""
    found = check(node, env)
    if found is not None and found.type not in {"boolean", "any"}:
        raise CelError(f"cel expression must evaluate to a bool, not {found.type}")


def _select(node: Select, env: Mapping[str, Type]) -> Type:
    operand = check(node.operand, env)
    if operand is None:
        return BOOL if node.test else None
    if operand.type != "object":
        raise CelError(f"type '{operand.type}' does not support field selection of '{node.field}'")
    if node.field in operand.properties:
        found: Type = operand.properties[node.field]
    elif operand.additional is not None:
        found = operand.additional
    else:
        raise CelError(f"undefined field '{node.field}'")
    return BOOL if node.test else _usable(found, node.field)


def _usable(found: Type, name: str) -> Type:
    if found is None:
        return None
    if found.raw.get("format") in _TYPED_FORMATS:
        raise CelError(
            f"field '{name}' of format {found.raw['format']!r} is not supported in rules"
        )
    return None if found.type in {"any", "int-or-string"} else found


def _index(operand: Type, index: Type) -> Type:
    if operand is None:
        return None
    if operand.type == "array":
        if index is not None and index.type != "integer":
            raise CelError(f"a list is indexed by int, not {index.type}")
        return operand.items
    if operand.type == "object" and operand.additional is not None:
        return operand.additional
    raise CelError(f"type '{operand.type}' does not support indexing")


def _call(node: Call, env: Mapping[str, Type]) -> Type:
    if node.target is not None:
        check(node.target, env)
    args = [check(arg, env) for arg in node.args]
    name = node.function
    if name in _LOGICAL or name in _COMPARISONS:
        _operands(name, args)
        return BOOL
    if name == "?:":
        return args[1] if args[1] is not None else args[2]
    if name in OPERATORS or name == "-_":
        return args[0]
    table, what = (FUNCTIONS, "function") if node.target is None else (METHODS, "method")
    if name not in table:
        raise CelError(f"undeclared reference to {what} '{name}'")
    if len(args) not in table[name][0]:
        raise CelError(f"{what} '{name}' does not take {len(args)} argument(s)")
    _literal_pattern(node)
    return _result(name)


def _operands(name: str, args: list[Type]) -> None:
    known = [arg for arg in args if arg is not None]
    if name in _LOGICAL:
        for arg in known:
            if arg.type not in {"boolean", "any"}:
                raise CelError(f"'{name.strip('_')}' wants booleans, not {arg.type}")
        return
    if name == "in" or len(known) < 2:
        return
    kinds = {"number" if arg.type == "integer" else arg.type for arg in known}
    if len(kinds) > 1 and kinds <= _SCALARS:
        raise CelError(f"found no matching overload for '{name}' on {' and '.join(sorted(kinds))}")


def _literal_pattern(node: Call) -> None:
    if node.function not in {"matches", "find", "findAll"}:
        return
    pattern = node.args[-1]
    if isinstance(pattern, Literal) and isinstance(pattern.value, str):
        try:
            compile_pattern(pattern.value)
        except PatternError as error:
            raise CelError(str(error)) from error


def _result(name: str) -> Type:
    if name in _BOOL_METHODS or name in {"isQuantity", "bool", "isInteger"}:
        return BOOL
    if name in {"size", "int", "indexOf", "compareTo", "asInteger", "sign"}:
        return INT
    if name in {"string", "lowerAscii", "upperAscii", "trim", "replace", "substring", "join"}:
        return STRING
    return None


def _macro(node: Macro, env: Mapping[str, Type]) -> Type:
    operand = check(node.operand, env)
    element: Type = None
    if operand is not None:
        if operand.type == "array":
            element = _usable(operand.items, "[]")
        elif operand.type == "object" and operand.additional is not None:
            element = STRING
        else:
            raise CelError(f"type '{operand.type}' does not support '{node.kind}'")
    inner = {**env, node.variable: element}
    body = check(node.body, inner)
    if node.body2 is not None:
        check(node.body2, inner)
    if (node.kind != "map" or node.body2 is not None) and body is not None:
        _operands("&&", [body])
    return BOOL if node.kind in {"all", "exists", "exists_one"} else None
