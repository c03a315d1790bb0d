"""The grammar of filters: from words to a tree. Upstream: ``SelectorParser.jj``.

    filter      = either
    either      = both { OR both }
    both        = equality { AND equality }
    equality    = comparison { ( "=" | "<>" ) comparison | IS [ NOT ] NULL }
    comparison  = unary { ( ">" | ">=" | "<" | "<=" ) unary
                        | [ NOT ] BETWEEN unary AND unary
                        | [ NOT ] IN "(" text { "," text } ")"
                        | [ NOT ] ( CONTAINS | STARTSWITH | ENDSWITH ) text }
    unary       = ( "+" | "-" | NOT ) unary | primary
    primary     = text | number | TRUE | FALSE | NULL | name | "(" either ")"

What upstream refuses when it builds its objects is refused here, too: an order of texts or truths,
``= NULL``, IN of anything but a property. Upstream stops at the first word that it cannot use, and
ignores the rest: of ``a LIKE 'x'`` it takes ``a``. Here the whole text is the filter.

Bounded: characters, terms, properties, searches in texts, texts of all IN lists, and how deep terms
stand in each other.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from gantry_broker.clients.core.filters.tokens import Token, refusal, shown, tokens

TERMS_MAX = 512  # values, properties and what compares them: three in ``a > 5``
NAMES_MAX = 64
CONTAINS_MAX = 32  # each may look at all of a text
LISTED_MAX = 1_024
DEPTH_MAX = 32
INT64_MAX = 2**63 - 1

Value: TypeAlias = str | bool | int | float | None
ORDERS = (">", ">=", "<", "<=")
SEARCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_SIDES = ("BETWEEN", "IN", *SEARCHES)


class Constant(NamedTuple):
    """A value as it is written; None is NULL."""

    value: Value


class Name(NamedTuple):
    """A property."""

    name: str


class Negated(NamedTuple):
    """Minus: of a number that number, of all else nothing."""

    of: "Node"


class Compared(NamedTuple):
    """``=`` or an order."""

    sign: str
    left: "Node"
    right: "Node"


class Missing(NamedTuple):
    """IS NULL."""

    of: "Node"


class Searched(NamedTuple):
    """CONTAINS and its like; with NOT they are no plain negation."""

    kind: str
    of: "Node"
    text: str
    is_not: bool


class Within(NamedTuple):
    """IN."""

    name: str
    texts: frozenset[str]
    is_not: bool


class Bare(NamedTuple):
    """A property as a condition: it is there, and a text, so it is no truth."""

    name: str


class Inverse(NamedTuple):
    """NOT."""

    of: "Node"


class Every(NamedTuple):
    """AND."""

    parts: tuple["Node", ...]


class Some(NamedTuple):
    """OR."""

    parts: tuple["Node", ...]


Node: TypeAlias = (
    Constant
    | Name
    | Negated
    | Compared
    | Missing
    | Searched
    | Within
    | Bare
    | Inverse
    | Every
    | Some
)
CONDITIONS = (Compared, Missing, Searched, Within, Bare, Inverse, Every, Some)


class Parsed(NamedTuple):
    """A filter, and what it costs.

    Attributes:
        root: of the tree.
        terms: of one evaluation.
        names: of properties.
        contains: searches in texts.
    """

    root: Node
    terms: int
    names: list[str]
    contains: int


def parse(source: str) -> Parsed:
    """The tree of a filter.

    Raises:
        FilterError: it does not parse, or is too large.
    """
    parser = _Parser(source)
    root = parser.whole()
    return Parsed(root, parser.terms, sorted(parser.names), parser.contains)


class _Parser:
    def __init__(self, source: str) -> None:
        self.terms = 0
        self.contains = 0
        self.names: set[str] = set()
        self._listed = 0
        self._depth = 0
        self._source = source
        self._tokens = tokens(source)
        self._next = next(self._tokens)

    # ---- words

    def _take(self) -> Token:
        token = self._next
        if token.kind != "end":
            self._next = next(self._tokens)
        return token

    def _skip(self, kind: str) -> bool:
        """Whether this is the next word, which is taken then."""
        if self._next.kind != kind:
            return False
        self._take()
        return True

    def _expect(self, kind: str, what: str) -> Token:
        if self._next.kind != kind:
            raise refusal(
                self._source, self._next.at, f"{what} is expected, and not {shown(self._next)}"
            )
        return self._take()

    def _text(self) -> str:
        return self._expect("text", "a text in single quotes").image[1:-1].replace("''", "'")

    # ---- bounds

    def _count(self, token: Token) -> None:
        self.terms += 1
        if self.terms > TERMS_MAX:
            raise refusal(self._source, token.at, f"it has more than {TERMS_MAX} terms")

    def _enter(self, token: Token) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise refusal(
                self._source, token.at, f"terms stand more than {DEPTH_MAX} deep in each other"
            )

    # ---- grammar

    def whole(self) -> Node:
        first = self._next
        found = self._condition(self._either(), first)
        if self._next.kind != "end":
            raise refusal(
                self._source, self._next.at, f"{shown(self._next)} belongs to nothing before it"
            )
        return found

    def _either(self) -> Node:
        return self._joined("OR", self._both, Some)

    def _both(self) -> Node:
        return self._joined("AND", self._equality, Every)

    def _joined(
        self, word: str, part: Callable[[], Node], make: Callable[[tuple[Node, ...]], Node]
    ) -> Node:
        first = self._next
        found = part()
        if self._next.kind != word:
            return found
        parts = [self._condition(found, first)]
        while self._skip(word):
            first = self._next
            parts.append(self._condition(part(), first))
        return make(tuple(parts))

    def _condition(self, node: Node, first: Token) -> Node:
        if isinstance(node, Name):
            return Bare(node.name)
        if not _is_condition(node):
            raise refusal(self._source, first.at, "a condition is expected, and this is a value")
        return node

    def _equality(self) -> Node:
        first, depth = self._next, self._depth
        found = self._comparison()
        while (token := self._next).kind in ("=", "<>", "IS"):
            self._count(self._take())
            self._enter(token)  # each holds the one before
            if token.kind == "IS":
                is_not = self._skip("NOT")
                self._expect("NULL", "NULL")
                found = Missing(found)
                found = Inverse(found) if is_not else found
                continue
            second = self._next
            right = self._comparison()
            for side, at in ((found, first), (right, second)):
                if side == Constant(None):
                    raise refusal(self._source, at.at, "NULL equals nothing: write IS NULL")
            if (
                isinstance(found, Constant)
                and isinstance(found.value, bool)
                and isinstance(right, Constant)
                and not isinstance(right.value, bool)
            ):
                raise refusal(
                    self._source, second.at, f"a truth cannot be compared with {shown(second)}"
                )
            found = Compared("=", found, right)
            found = Inverse(found) if token.kind == "<>" else found
        self._depth = depth
        return found

    def _comparison(self) -> Node:
        first, depth = self._next, self._depth
        found = self._unary()
        while True:
            token = self._next
            if token.kind in ORDERS:
                self._count(self._take())
                self._enter(token)
                found = self._ordered(token.kind, found, first)
            elif token.kind == "NOT" or token.kind in _SIDES:
                self._count(self._take())
                self._enter(token)
                is_not = token.kind == "NOT"
                if is_not and self._next.kind not in _SIDES:
                    words = ", ".join(_SIDES)
                    raise refusal(
                        self._source, self._next.at, f"after NOT one of {words} is expected"
                    )
                kind = self._take().kind if is_not else token.kind
                found = self._side(kind, found, first, is_not=is_not)
            else:
                self._depth = depth
                return found

    def _ordered(self, sign: str, left: Node, first: Token) -> Node:
        self._orderable(left, first)
        second = self._next
        right = self._unary()
        self._orderable(right, second)
        return Compared(sign, left, right)

    def _orderable(self, node: Node, first: Token) -> None:
        is_number = isinstance(node, Constant) and type(node.value) in (int, float)
        if not is_number and not isinstance(node, Name | Negated):
            raise refusal(self._source, first.at, "only numbers and properties have an order")

    def _side(self, kind: str, left: Node, first: Token, *, is_not: bool) -> Node:
        if kind == "BETWEEN":
            return self._between(left, first, is_not=is_not)
        if kind != "IN":
            self.contains += kind == "CONTAINS"
            if self.contains > CONTAINS_MAX:
                why = f"it has more than {CONTAINS_MAX} CONTAINS"
                raise refusal(self._source, self._next.at, why)
            return Searched(kind, left, self._text(), is_not)
        if not isinstance(left, Name):
            raise refusal(self._source, first.at, "IN takes a property")
        self._expect("(", "'('")
        texts = [self._listed_text()]
        while self._skip(","):
            texts.append(self._listed_text())
        self._expect(")", "',' or ')'")
        return Within(left.name, frozenset(texts), is_not)

    def _listed_text(self) -> str:
        self._listed += 1
        if self._listed > LISTED_MAX:
            raise refusal(
                self._source, self._next.at, f"IN lists have more than {LISTED_MAX} texts"
            )
        return self._text()

    def _between(self, value: Node, first: Token, *, is_not: bool) -> Node:
        self._orderable(value, first)
        at_low = self._next
        low = self._unary()
        self._orderable(low, at_low)
        self._count(self._expect("AND", "AND"))
        at_high = self._next
        high = self._unary()
        self._orderable(high, at_high)
        if is_not:
            return Some((Compared("<", value, low), Compared(">", value, high)))
        if isinstance(low, Constant) and isinstance(high, Constant):
            assert isinstance(low.value, int | float)
            assert isinstance(high.value, int | float)
            if high.value < low.value:
                raise refusal(self._source, at_high.at, "BETWEEN ends below where it begins")
        return Every((Compared(">=", value, low), Compared("<=", value, high)))

    def _unary(self) -> Node:
        token = self._next
        if token.kind not in ("+", "-", "NOT"):
            return self._primary()
        self._enter(self._take())
        first = self._next
        found = self._unary()
        self._depth -= 1
        if token.kind == "-":
            return Negated(found)
        return Inverse(self._condition(found, first)) if token.kind == "NOT" else found

    def _primary(self) -> Node:
        token = self._next
        match token.kind:
            case "text":
                self._count(token)
                return Constant(self._text())
            case "integer" | "float":
                self._count(token)
                return Constant(self._number(self._take()))
            case "TRUE" | "FALSE":
                self._count(self._take())
                return Constant(token.kind == "TRUE")
            case "NULL":
                self._count(self._take())
                return Constant(None)
            case "name":
                self._count(self._take())
                self.names.add(token.image)
                if len(self.names) > NAMES_MAX:
                    why = f"it names more than {NAMES_MAX} properties"
                    raise refusal(self._source, token.at, why)
                return Name(token.image)
            case "(":
                self._enter(self._take())
                found = self._either()
                self._depth -= 1
                self._expect(")", "')'")
                return found
            case _:
                raise refusal(
                    self._source,
                    token.at,
                    f"a property, a value or '(' is expected, and not {shown(token)}",
                )

    def _number(self, token: Token) -> int | float:
        if token.kind == "integer":
            digits = token.image.rstrip("lL")
            if len(digits) > len(str(INT64_MAX)) or int(digits) > INT64_MAX:
                raise refusal(self._source, token.at, f"{shown(token)} is more than {INT64_MAX}")
            return int(digits)
        value = float(token.image)
        is_zero = not token.image.lower().partition("e")[0].strip("0.")
        if math.isinf(value) or (value == 0 and not is_zero):
            raise refusal(self._source, token.at, f"{shown(token)} is out of the range of a double")
        return value


def _is_condition(node: Node) -> bool:
    if isinstance(node, Constant):
        return node.value is None or isinstance(node.value, bool)
    return isinstance(node, CONDITIONS)
