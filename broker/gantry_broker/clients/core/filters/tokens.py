"""The words of a filter, each with its place. Upstream: ``SelectorParserTokenManager``.

Every pattern is matched in time that grows with the text alone.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from gantry_protocol.errors import BodyError

TEXT_MAX = 8_192  # characters
_SHOWN_MAX = 32
_KEYWORDS = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"}) | {
    "CONTAINS",
    "STARTSWITH",
    "ENDSWITH",
}
_TOKEN = re.compile(
    r"""
    (?P<skip>[ \t\n\r\f]+
        |--[^\n\r]*
        |/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)
    |(?P<float>[0-9]+\.[0-9]*(?:E[+-]?[0-9]+)?|\.[0-9]+(?:E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+)
    |(?P<integer>0|[1-9][0-9]*L?)
    |(?P<text>'(?:''|[^'])*')
    |(?P<name>[A-Z_$][A-Z0-9_$]*)
    |(?P<sign><>|>=|<=|[=<>(),+-])
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


class FilterError(BodyError):
    """A filter that does not parse, or costs too much; the sentence says where."""


class Token(NamedTuple):
    """A word.

    Attributes:
        kind: ``float``, ``integer``, ``text``, ``name``, ``end``, or what it is itself: a sign, or
            a keyword in capitals.
        image: as it is written.
        at: where it begins.
    """

    kind: str
    image: str
    at: int


def refusal(source: str, at: int, why: str) -> FilterError:
    """The sentence about the character ``at``."""
    line = source.count("\n", 0, at) + 1
    column = at - source.rfind("\n", 0, at)
    return FilterError(f"The SQL filter is refused at line {line}, column {column}: {why}.")


def shown(token: Token) -> str:
    """A word in a sentence."""
    if token.kind == "end":
        return "the end"
    cut = token.image if len(token.image) <= _SHOWN_MAX else token.image[:_SHOWN_MAX] + "..."
    return f"{cut!r}"


def tokens(source: str) -> Iterator[Token]:
    """The words of ``source``, and its end.

    Raises:
        FilterError: it is too long, or something is no word.
    """
    if len(source) > TEXT_MAX:
        raise refusal(source, TEXT_MAX, f"it has {len(source)} characters, {TEXT_MAX} are allowed")
    at = 0
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            is_text = source[at] == "'"
            why = "a text has no end" if is_text else f"{source[at]!r} begins no word of a filter"
            raise refusal(source, at, why)
        kind, image = str(found.lastgroup), found.group()
        if kind == "sign":
            kind = image
        elif kind == "name" and image.upper() in _KEYWORDS:
            kind = image.upper()
        if kind != "skip":
            yield Token(kind, image, at)
        at = found.end()
    yield Token("end", "", at)
