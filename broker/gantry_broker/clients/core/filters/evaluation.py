"""The meaning of filters: from a tree to a function of the values of some properties.

The answers are True, False and None (unknown), and a condition that has none ends the evaluation:
then the message does not match, whatever else the filter says. Upstream: ``ComparisonExpression``,
``UnaryExpression``, ``LogicExpression``, ``ExpressionMessageFilter``, as of 5.5.0. Properties are
texts; what they are compared with says how they are read. Java's kinds of numbers matter there:
``a > 5`` reads an ``Integer``, ``a > 3000000000`` a ``Long``, ``a > 5.0`` a ``Double``. A text that
is none has no answer.

The functions are closures over the tree: nothing of a filter's text becomes code.
"""

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, assert_never

from gantry_broker.clients.core.filters.grammar import (
    CONDITIONS,
    Bare,
    Compared,
    Constant,
    Every,
    Inverse,
    Missing,
    Name,
    Negated,
    Node,
    Searched,
    Some,
    Value,
    Within,
)

Values: TypeAlias = Sequence[str | None]
Function: TypeAlias = Callable[[Values], Value]

INT32_MAX = 2**31 - 1
NUMBER_MAX = 400  # characters of a text that is read as a number; the largest double has 309
_INTEGER = re.compile(r"[+-]?0*[0-9]{1,19}", re.ASCII).fullmatch
_DOUBLE = re.compile(
    r"""[\x00-\x20]*
    (?P<sign>[+-]?)
    (?:(?P<word>NaN|Infinity)
      |(?P<hex>0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?
      |(?P<decimal>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)
    [\x00-\x20]*""",
    re.VERBOSE | re.ASCII,
).fullmatch
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class NoAnswerError(Exception):
    """A condition has no answer."""


_NO_ANSWER = NoAnswerError("a text was compared with what it cannot be read as")


# ---- values


def _integer(text: str) -> int:
    return _whole(text, INT32_MAX)


def _long(text: str) -> int:
    return _whole(text, 2**63 - 1)


def _whole(text: str, highest: int) -> int:
    """The number in a text. Java's reading; digits of other scripts are none here.

    Raises:
        NoAnswerError: there is none, or it does not fit.
    """
    if len(text) > NUMBER_MAX or not _INTEGER(text):
        raise _NO_ANSWER
    number = int(text)
    if not -highest - 1 <= number <= highest:
        raise _NO_ANSWER
    return number


def _double(text: str) -> float:
    """The number in a text, as ``Double.valueOf`` reads it.

    Raises:
        NoAnswerError: there is none.
    """
    found = _DOUBLE(text) if len(text) <= NUMBER_MAX else None
    if found is None:
        raise _NO_ANSWER
    sign, word, in_hex, decimal = found.groups()
    if in_hex:
        try:
            number = float.fromhex(in_hex)
        except OverflowError:
            number = math.inf
    else:
        number = float(decimal or word)
    return -number if sign == "-" else number


def _reader(number: float) -> Callable[[str], float]:
    """What reads a text that is compared with ``number``.

    The lowest int32 is written as the negation of a ``Long``, and stays one.
    """
    if isinstance(number, float):
        return _double
    return _integer if -INT32_MAX <= number <= INT32_MAX else _long


def _sortable(number: float) -> tuple[bool, float, float]:
    """Java's order of doubles: NaN behind all, the negative zero before the other."""
    is_nan = math.isnan(number)
    return is_nan, 0.0 if is_nan else number, math.copysign(1.0, number)


def _plain(number: float) -> float:
    """The place of a double among those that can be written in a filter."""
    return math.inf if number != number else number


def _compared(left: Value, right: Value) -> int:
    """Below 0, 0 or above: the order of two values that are there.

    Raises:
        NoAnswerError: they cannot be compared.
    """
    if isinstance(left, str):
        if isinstance(right, str):
            return (left > right) - (left < right)
        if isinstance(right, bool):
            left = left.lower() == "true"
        else:
            assert right is not None
            left = _plain(_reader(right)(left))
    elif isinstance(right, str):
        if isinstance(left, bool):
            raise _NO_ANSWER
        assert left is not None
        right = _plain(_reader(left)(right))
    elif isinstance(left, bool) != isinstance(right, bool):
        return -1
    assert left is not None
    assert right is not None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    return (left > right) - (left < right)


def _equal(left: Value, right: Value) -> bool | None:
    """Whether two values are equal; which of them is missing matters, as upstream has it."""
    if left is None or right is None:
        return True if left is right else None if left is None else False
    return _compared(left, right) == 0


def _ordered(sign: str, left: Value, right: Value) -> bool:
    order = _ORDERS[sign]
    if isinstance(left, str) and isinstance(right, str):
        return order(_sortable(_double(left)), _sortable(_double(right)))
    return order(_compared(left, right), 0)


# ---- functions


def function_of(node: Node, places: dict[str, int]) -> Function:
    """The function that evaluates ``node``; ``places`` says where each value is."""
    match node:
        case Constant(value):
            return lambda values: value
        case Name(name):
            return operator.itemgetter(places[name])
        case Negated(of):
            return _negated(of, places)
        case Every(parts):
            return _all([function_of(part, places) for part in parts])
        case Some(parts):
            return _any([function_of(part, places) for part in parts])
        case Inverse(of):
            return _inverse(function_of(of, places))
        case _:
            return _condition(node, places)


def _condition(
    node: Bare | Missing | Searched | Within | Compared, places: dict[str, int]
) -> Function:
    match node:
        case Bare(name):
            at = places[name]
            return lambda values: None if values[at] is None else False
        case Missing(of):
            inner = function_of(of, places)
            return lambda values: inner(values) is None
        case Searched():
            return _searched(node, function_of(node.of, places))
        case Within():
            return _listed(node, places[node.name])
        case Compared("=", left, right):
            return _equality(left, right, places)
        case Compared(sign, left, right):
            return _order(sign, left, right, places)
        case _:
            assert_never(node)


def _negated(of: Node, places: dict[str, int]) -> Function:
    number = _number_of(Negated(of))
    if number is not None or not isinstance(of, (*CONDITIONS, Negated)):
        return lambda values: number
    inner = function_of(of, places)

    def nothing(values: Values) -> Value:
        inner(values)  # it may have no answer
        return None

    return nothing


def _number_of(node: Node) -> int | float | None:
    """The number that is written, with its signs; None where none is."""
    if isinstance(node, Negated):
        number = _number_of(node.of)
        return None if number is None else -number
    if isinstance(node, Constant) and type(node.value) in (int, float):
        assert isinstance(node.value, int | float)
        return node.value
    return None


def _inverse(inner: Function) -> Function:
    def inverse(values: Values) -> Value:
        found = inner(values)
        return None if found is None else not found

    return inverse


def _searched(node: Searched, inner: Function) -> Function:
    text, is_not = node.text, node.is_not
    if not text:
        return lambda values: False

    def searched(values: Values) -> Value:
        value = inner(values)
        if not isinstance(value, str):
            return False
        if node.kind == "CONTAINS":
            found = text in value
        else:
            found = value.startswith(text) if node.kind == "STARTSWITH" else value.endswith(text)
        return found is not is_not

    return searched


def _listed(node: Within, at: int) -> Function:
    texts, is_not = node.texts, node.is_not

    def listed(values: Values) -> Value:
        value = values[at]
        return None if value is None else (value in texts) is not is_not

    return listed


def _equality(left: Node, right: Node, places: dict[str, int]) -> Function:
    if isinstance(left, Name) and isinstance(right, Constant) and isinstance(right.value, str):
        at, text = places[left.name], right.value

        def is_text(values: Values) -> Value:  # what most filters are made of
            value = values[at]
            return None if value is None else value == text

        return is_text
    first, second = function_of(left, places), function_of(right, places)
    return lambda values: _equal(first(values), second(values))


def _order(sign: str, left: Node, right: Node, places: dict[str, int]) -> Function:
    number = _number_of(right)
    if isinstance(left, Name) and number is not None:
        at, read, order = places[left.name], _reader(number), _ORDERS[sign]

        def is_ordered(values: Values) -> Value:  # the same
            value = values[at]
            return None if value is None else order(_plain(read(value)), number)

        return is_ordered
    first, second = function_of(left, places), function_of(right, places)

    def ordered(values: Values) -> Value:
        one = first(values)
        if one is None:
            return None
        other = second(values)
        return None if other is None else _ordered(sign, one, other)

    return ordered


def _all(parts: list[Function]) -> Function:
    def every(values: Values) -> Value:
        answer: bool | None = True
        for part in parts:
            found = part(values)
            if found is False:
                return False
            if found is None:
                answer = None
        return answer

    return every


def _any(parts: list[Function]) -> Function:
    def some(values: Values) -> Value:
        answer: bool | None = False
        for part in parts:
            found = part(values)
            if found is True:
                return True
            if found is None:
                answer = None
        return answer

    return some
