"""Functions and methods available to rules, by name: the standard ones and Kubernetes' libraries.

Anything not in these tables is refused when the CRD is registered. Sources: the CEL language
definition's standard functions, the strings extension, and "CEL in Kubernetes" (lists, regex,
quantity).
"""

from __future__ import annotations

import itertools
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.cel.lexer import CelError
from gantry_local.apiserver.regex import PatternError, compile_pattern
from gantry_local.quantity import Quantity, QuantityError, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable

INT_MIN, INT_MAX = -(2**63), 2**63 - 1


def type_name(value: Any) -> str:
    """CEL's name of a value's type, for error texts."""
    match value:
        case None:
            return "null_type"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "double"
        case str():
            return "string"
        case list():
            return "list"
        case dict():
            return "map"
        case Quantity():
            return "quantity"
        case _:
            return type(value).__name__


def want(value: Any, *types: type) -> Any:
    """``value`` if it is of one of the types (booleans are never numbers)."""
    if isinstance(value, bool) and bool not in types:
        raise CelError(f"no such overload for {type_name(value)}")
    if not isinstance(value, types):
        raise CelError(f"no such overload for {type_name(value)}")
    return value


def checked_int(value: int) -> int:
    """``value`` if it fits CEL's int."""
    if not INT_MIN <= value <= INT_MAX:
        raise CelError("integer overflow")
    return value


def _size(value: Any) -> int:
    return len(want(value, str, list, dict))


def _int(value: Any) -> int:
    match value:
        case bool():
            raise CelError("no such overload: int(bool)")
        case int():
            return value
        case float() if math.isfinite(value):
            return checked_int(math.trunc(value))
        case str() if re.fullmatch(r"[+-]?\d+", value):
            return checked_int(int(value))
    raise CelError(f"cannot convert {value!r} to int")


def _double(value: Any) -> float:
    want(value, int, float, str)
    try:
        return float(value)
    except ValueError as error:
        raise CelError(f"cannot convert {value!r} to double") from error


def _string(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float():
            return repr(value)
    raise CelError(f"no such overload: string({type_name(value)})")


def _bool(value: Any) -> bool:
    match value:
        case bool():
            return value
        case "true" | "True" | "TRUE" | "t" | "1":
            return True
        case "false" | "False" | "FALSE" | "f" | "0":
            return False
    raise CelError(f"cannot convert {value!r} to bool")


def _quantity(value: Any) -> Quantity:
    try:
        return parse_quantity(want(value, str))
    except QuantityError as error:
        raise CelError(str(error)) from error


def _is_quantity(value: Any) -> bool:
    try:
        parse_quantity(want(value, str))
    except QuantityError:
        return False
    return True


def _pattern(text: Any) -> re.Pattern[str]:
    try:
        return compile_pattern(want(text, str))
    except PatternError as error:
        raise CelError(str(error)) from error


def _search(value: Any, pattern: Any) -> bool:
    return _pattern(pattern).search(want(value, str)) is not None


def _find(value: Any, pattern: Any) -> str:
    found = _pattern(pattern).search(want(value, str))
    return found.group() if found else ""


def _find_all(value: Any, pattern: Any) -> list[str]:
    return [found.group() for found in _pattern(pattern).finditer(want(value, str))]


def _substring(value: Any, start: Any, end: Any = None) -> str:
    text = want(value, str)
    stop = len(text) if end is None else want(end, int)
    if not 0 <= want(start, int) <= stop <= len(text):
        raise CelError(f"index out of range: {start}, {stop}")
    return str(text[start:stop])


def _char_at(value: Any, index: Any) -> str:
    return _substring(value, index, min(want(index, int) + 1, len(want(value, str))))


def _is_sorted(value: Any) -> bool:
    items = want(value, list)
    return all(left <= right for left, right in itertools.pairwise(items))


def _extreme(pick: Callable[[list[Any]], Any]) -> Callable[[Any], Any]:
    def chosen(value: Any) -> Any:
        if not want(value, list):
            raise CelError("min/max called on an empty list")
        return pick(value)

    return chosen


def _index_of(value: Any, item: Any) -> int:
    if isinstance(value, str):
        return value.find(want(item, str))
    return want(value, list).index(item) if item in value else -1


def _compare(left: Any, right: Any) -> int:
    return int(want(left, Quantity).compare(want(right, Quantity)))


def _quantity_add(left: Any, right: Any) -> Quantity:
    other = right.value if isinstance(right, Quantity) else Decimal(want(right, int))
    return Quantity(want(left, Quantity).value + other)


def _quantity_sub(left: Any, right: Any) -> Quantity:
    other = right.value if isinstance(right, Quantity) else Decimal(want(right, int))
    return Quantity(want(left, Quantity).value - other)


def _as_integer(value: Any) -> int:
    number = want(value, Quantity).value
    if number != number.to_integral_value():
        raise CelError(f"cannot convert quantity {number} to integer")
    return checked_int(int(number))


FUNCTIONS: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "size": ((1,), _size),
    "int": ((1,), _int),
    "double": ((1,), _double),
    "string": ((1,), _string),
    "bool": ((1,), _bool),
    "dyn": ((1,), lambda value: value),
    "quantity": ((1,), _quantity),
    "isQuantity": ((1,), _is_quantity),
    "matches": ((2,), _search),
}
"""Global functions: accepted argument counts and implementation."""

METHODS: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "size": ((0,), _size),
    "startsWith": ((1,), lambda text, part: want(text, str).startswith(want(part, str))),
    "endsWith": ((1,), lambda text, part: want(text, str).endswith(want(part, str))),
    "contains": ((1,), lambda text, part: want(part, str) in want(text, str)),
    "matches": ((1,), _search),
    "find": ((1,), _find),
    "findAll": ((1,), _find_all),
    "lowerAscii": ((0,), lambda text: want(text, str).lower()),
    "upperAscii": ((0,), lambda text: want(text, str).upper()),
    "trim": ((0,), lambda text: want(text, str).strip()),
    "split": ((1,), lambda text, by: want(text, str).split(want(by, str))),
    "replace": ((2,), lambda text, old, new: want(text, str).replace(old, want(new, str))),
    "substring": ((1, 2), _substring),
    "charAt": ((1,), _char_at),
    "indexOf": ((1,), _index_of),
    "join": ((0, 1), lambda items, by="": want(by, str).join(want(items, list))),
    "isSorted": ((0,), _is_sorted),
    "sum": ((0,), lambda items: sum(want(items, list))),
    "min": ((0,), _extreme(min)),
    "max": ((0,), _extreme(max)),
    "compareTo": ((1,), _compare),
    "isGreaterThan": ((1,), lambda left, right: _compare(left, right) > 0),
    "isLessThan": ((1,), lambda left, right: _compare(left, right) < 0),
    "add": ((1,), _quantity_add),
    "sub": ((1,), _quantity_sub),
    "sign": ((0,), lambda value: want(value, Quantity).compare(Quantity(Decimal(0)))),
    "asInteger": ((0,), _as_integer),
    "isInteger": ((0,), lambda value: want(value, Quantity).value % 1 == 0),
    "asApproximateFloat": ((0,), lambda value: float(want(value, Quantity).value)),
}
"""Methods: accepted argument counts without the target, and implementation."""
