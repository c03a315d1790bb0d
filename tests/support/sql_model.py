"""Filters in SQL by their meaning, slowly: what a tree says of some properties, and its text.

Written from upstream's classes and with nothing of the product: numbers carry the name of their
Java class, every rule is spelled out, nothing is prepared.
"""

from __future__ import annotations

import math
import re
from typing import Any

Tree = tuple[Any, ...]
INTEGER, LONG, DOUBLE = "Integer", "Long", "Double"
ORDERS = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


class JavaError(Exception):
    """Upstream's evaluation throws."""


def text_of(tree: Tree) -> str:
    """The filter, with brackets around everything that may have some."""
    match tree:
        case ("name", name):
            return name
        case ("number", _, image):
            return image
        case ("text", text):
            return "'" + text.replace("'", "''") + "'"
        case ("truth", value):
            return {True: "TRUE", False: "FALSE", None: "NULL"}[value]
        case ("minus", of):
            return f"-({text_of(of)})"
        case ("not", of):
            return f"NOT ({text_of(of)})"
        case ("null", of):
            return f"({text_of(of)}) IS NULL"
        case ("and" | "or" as word, left, right):
            return f"({text_of(left)}) {word.upper()} ({text_of(right)})"
        case ("in", name, texts, is_not):
            listed = ", ".join(text_of(("text", text)) for text in texts)
            return f"{name} {'NOT ' if is_not else ''}IN ({listed})"
        case ("search", kind, of, text, is_not):
            return f"({text_of(of)}) {'NOT ' if is_not else ''}{kind} {text_of(('text', text))}"
        case ("=" | "<" | "<=" | ">" | ">=" as sign, left, right):
            return f"({text_of(left)}) {sign} ({text_of(right)})"
    raise AssertionError(tree)


def matches(tree: Tree, properties: dict[str, str]) -> bool:
    """Whether a message with these properties is delivered."""
    try:
        return _truth(_value(tree, properties)) is True
    except JavaError:
        return False


def _value(tree: Tree, has: dict[str, str]) -> Any:
    """None, a bool, a str, or the class and value of a number."""
    match tree:
        case ("name", name):
            return has.get(name)
        case ("number", (kind, value), _):
            return kind, value
        case ("text", text):
            return text
        case ("truth", value):
            return value
        case ("minus" | "not" | "null" as kind, of):
            return _unary(kind, _value(of, has))
        case ("and" | "or" as kind, left, right):
            return _both(left, right, has, end=kind == "or")
        case ("in", name, texts, is_not):
            return None if name not in has else (has[name] in texts) != is_not
        case ("search", kind, of, text, is_not):
            return _search(kind, of, text, is_not, has)
        case ("=", left, right):
            return _equal(_value(left, has), _value(right, has))
        case (sign, left, right):
            one = _value(left, has)
            if one is None:
                return None
            other = _value(right, has)
            return None if other is None else ORDERS[sign](_ordered(one, other))
    raise AssertionError(tree)


def _truth(found: Any) -> bool | None:
    return found if isinstance(found, bool) else None if found is None else False


def _unary(kind: str, found: Any) -> Any:
    if kind == "null":
        return found is None
    if kind == "minus":
        return (found[0], -found[1]) if isinstance(found, tuple) else None
    truth = _truth(found)
    return None if truth is None else not truth


def _condition(tree: Tree, has: dict[str, str]) -> bool | None:
    return _truth(_value(tree, has))


def _both(left: Tree, right: Tree, has: dict[str, str], *, end: bool) -> bool | None:
    one = _condition(left, has)
    if one is end:
        return end
    other = _condition(right, has)
    if other is end:
        return end
    return None if one is None or other is None else not end


def _search(kind: str, of: Tree, text: str, is_not: bool, has: dict[str, str]) -> bool:
    if not text:
        return False
    found = _value(of, has)
    if not isinstance(found, str):
        return False
    if kind == "CONTAINS":
        return (text in found) != is_not
    if kind == "STARTSWITH":
        return (found[: len(text)] == text) != is_not
    return (found[-len(text) :] == text) != is_not


def _equal(one: Any, other: Any) -> bool | None:
    if one is None and other is None:
        return True
    if one is None:
        return None
    if other is None:
        return False
    if type(one) is type(other) and one == other:
        return True
    return _order(one, other) == 0


def _ordered(one: Any, other: Any) -> int:
    if isinstance(one, str) and isinstance(other, str):
        return _order((DOUBLE, _read(DOUBLE, one)), (DOUBLE, _read(DOUBLE, other)))
    return _order(one, other)


def _order(one: Any, other: Any) -> int:
    """``ComparisonExpression.__compare``."""
    if isinstance(one, str) and isinstance(other, str):
        return 0 if one == other else -1 if one < other else 1
    if isinstance(one, bool) and isinstance(other, bool):
        return int(one) - int(other)
    if isinstance(one, str) and isinstance(other, bool):
        return int(one.lower() == "true") - int(other)
    if isinstance(one, bool) and isinstance(other, str):
        raise JavaError
    if isinstance(one, bool) or isinstance(other, bool):
        return -1
    if isinstance(one, str):
        one = (other[0], _read(other[0], one))
    if isinstance(other, str):
        other = (one[0], _read(one[0], other))
    values = [one[1], other[1]]
    if DOUBLE in (one[0], other[0]):
        places = [_place(float(value)) for value in values]
        return (places[0] > places[1]) - (places[0] < places[1])
    return (values[0] > values[1]) - (values[0] < values[1])


def _place(value: float) -> tuple[float, float]:
    if math.isnan(value):
        return math.inf, 1.0
    return value or 0.0, 0.0 if value else math.copysign(0.5, value)


def _read(kind: str, text: str) -> float:
    if kind == DOUBLE:
        stripped = text.strip("".join(map(chr, range(33))))
        sign, rest = (stripped[0], stripped[1:]) if stripped[:1] in ("+", "-") else ("", stripped)
        if rest in ("NaN", "Infinity"):
            return float(sign + rest)
        if re.fullmatch(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?", rest, re.ASCII):
            return float(sign + rest.rstrip("fFdD"))
        raise JavaError
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        raise JavaError
    bits = 31 if kind == INTEGER else 63
    if not -(2**bits) <= int(text) < 2**bits:
        raise JavaError
    return int(text)
