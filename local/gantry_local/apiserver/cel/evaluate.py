"""Evaluation of a checked tree over plain JSON values.

``&&`` and ``||`` are commutative over errors as CEL demands: a decisive side wins even when the
other one fails. Integers and doubles are distinct types that compare by value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.cel.functions import (
    FUNCTIONS,
    METHODS,
    checked_int,
    type_name,
    want,
)
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Scope = dict[str, Any]


def evaluate(node: Node, scope: Mapping[str, Any]) -> Any:
    """The value of ``node``.

    Raises:
        CelError: the expression has no value (missing key, wrong types, overflow).
    """
    return _eval(node, dict(scope))


def _eval(node: Node, scope: Scope) -> Any:
    match node:
        case Literal(value):
            return value
        case Name(name):
            return scope[name]
        case Select():
            return _select(node, scope)
        case Index(operand, index):
            return _index(_eval(operand, scope), _eval(index, scope))
        case Call():
            return _call(node, scope)
        case Macro():
            return _macro(node, scope)
        case ListOf(items):
            return [_eval(item, scope) for item in items]
        case MapOf(entries):
            return {_eval(key, scope): _eval(value, scope) for key, value in entries}


def _select(node: Select, scope: Scope) -> Any:
    operand = _eval(node.operand, scope)
    if not isinstance(operand, dict):
        raise CelError(f"type {type_name(operand)} does not support field selection")
    if node.test:
        return node.field in operand
    if node.field not in operand:
        raise CelError(f"no such key: {node.field}")
    return operand[node.field]


def _index(operand: Any, index: Any) -> Any:
    if isinstance(operand, dict):
        if not isinstance(index, str) or index not in operand:
            raise CelError(f"no such key: {index}")
        return operand[index]
    items, position = want(operand, list), want(index, int)
    if not 0 <= position < len(items):
        raise CelError(f"index out of bounds: {position}")
    return items[position]


def _call(node: Call, scope: Scope) -> Any:
    match node.function, node.args:
        case "&&", (left, right):
            return _logical(left, right, scope, decisive=False)
        case "||", (left, right):
            return _logical(left, right, scope, decisive=True)
        case "?:", (condition, then, otherwise):
            return _eval(then if want(_eval(condition, scope), bool) else otherwise, scope)
        case "!_", (operand,):
            return not bool(want(_eval(operand, scope), bool))
        case "-_", (operand,):
            return -want(_eval(operand, scope), int, float)
    args = [_eval(arg, scope) for arg in node.args]
    if node.target is not None:
        args.insert(0, _eval(node.target, scope))
        function = METHODS[node.function][1]
    else:
        function = OPERATORS.get(node.function) or FUNCTIONS[node.function][1]
    try:
        return function(*args)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise CelError(f"no such overload: {node.function}: {error}") from error


def _logical(left: Node, right: Node, scope: Scope, *, decisive: bool) -> bool:
    failure: CelError | None = None
    for side in (left, right):
        try:
            if bool(want(_eval(side, scope), bool)) is decisive:
                return decisive
        except CelError as error:
            failure = error
    if failure is not None:
        raise failure
    return not decisive


def _macro(node: Macro, scope: Scope) -> Any:
    operand = _eval(node.operand, scope)
    items = list(want(operand, list, dict))
    inner = dict(scope)
    if node.kind in {"all", "exists"}:
        return _quantified(node, items, inner)
    kept: list[Any] = []
    for item in items:
        inner[node.variable] = item
        value = _eval(node.body, inner)
        if node.kind == "map" and node.body2 is None:
            kept.append(value)
        elif want(value, bool):
            kept.append(item if node.body2 is None else _eval(node.body2, inner))
    return len(kept) == 1 if node.kind == "exists_one" else kept


def _quantified(node: Macro, items: list[Any], scope: Scope) -> bool:
    decisive = node.kind == "exists"
    failure: CelError | None = None
    for item in items:
        scope[node.variable] = item
        try:
            if bool(want(_eval(node.body, scope), bool)) is decisive:
                return decisive
        except CelError as error:
            failure = error
    if failure is not None:
        raise failure
    return not decisive


def equal(left: Any, right: Any) -> bool:
    """CEL equality: numbers by value, other types never equal across types."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    return bool(left == right)


def _less(left: Any, right: Any) -> bool:
    comparable = (int, float)
    if isinstance(left, str):
        return left < want(right, str)  # type: ignore[no-any-return]  # want() checks, returns Any
    if isinstance(left, bool):
        return left < want(right, bool)  # type: ignore[no-any-return]  # want() checks, returns Any
    return bool(want(left, *comparable) < want(right, *comparable))


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, str):
        return left + want(right, str)
    if isinstance(left, list):
        return left + want(right, list)
    return _numeric(left, right, left_plus_right=True)


def _numeric(left: Any, right: Any, *, left_plus_right: bool) -> Any:
    _same_number(left, right)
    value = left + right if left_plus_right else left - right
    return checked_int(value) if isinstance(value, int) else value


def _same_number(left: Any, right: Any) -> None:
    if type(want(left, int, float)) is not type(want(right, int, float)):
        raise CelError(f"no such overload: {type_name(left)} with {type_name(right)}")


def _multiply(left: Any, right: Any) -> Any:
    _same_number(left, right)
    return checked_int(left * right) if isinstance(left, int) else left * right


def _divide(left: Any, right: Any) -> Any:
    _same_number(left, right)
    if right == 0:
        raise CelError("division by zero")
    if isinstance(left, float):
        return left / right
    quotient = abs(left) // abs(right)  # CEL truncates towards zero, Python floors
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo(left: Any, right: Any) -> Any:
    want(left, int)
    return left - want(right, int) * _divide(left, right)


def _contains(item: Any, container: Any) -> bool:
    if isinstance(container, dict):
        return item in container
    return any(equal(item, other) for other in want(container, list))


OPERATORS: dict[str, Callable[..., Any]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "<": _less,
    "<=": lambda left, right: not _less(right, left),
    ">": lambda left, right: _less(right, left),
    ">=": lambda left, right: not _less(left, right),
    "in": _contains,
    "+": _add,
    "-": lambda left, right: _numeric(left, right, left_plus_right=False),
    "*": _multiply,
    "/": _divide,
    "%": _modulo,
}
