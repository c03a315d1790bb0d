"""A recursive-descent parser for CEL expressions.

Precedence, lowest first: ``?:``, ``||``, ``&&``, comparisons and ``in``, ``+ -``, ``* / %``, unary
``! -``, then selection, indexing and calls (the language definition's grammar).
"""

from __future__ import annotations

from typing import Final

import msgspec

from gantry_local.apiserver.cel.lexer import CelError, Token, tokenize

MAX_DEPTH: Final = 60
"""Nesting bound: rules come from CRDs and must not exhaust the interpreter's stack."""


class Literal(msgspec.Struct, frozen=True):
    """null, a boolean, a number or a string."""

    value: str | float | bool | None


class Name(msgspec.Struct, frozen=True):
    """A variable."""

    name: str


class Select(msgspec.Struct, frozen=True):
    """``operand.field``; with ``test``, ``has(operand.field)``."""

    operand: Node
    field: str
    test: bool = False


class Index(msgspec.Struct, frozen=True):
    """``operand[index]``."""

    operand: Node
    index: Node


class Call(msgspec.Struct, frozen=True):
    """A function, an operator (its sign is the name) or, with a target, a method."""

    function: str
    args: tuple[Node, ...]
    target: Node | None = None


class Macro(msgspec.Struct, frozen=True):
    """``operand.all(variable, body)`` and its kin; ``body2`` only for three-argument ``map``."""

    kind: str
    operand: Node
    variable: str
    body: Node
    body2: Node | None = None


class ListOf(msgspec.Struct, frozen=True):
    """A list literal."""

    items: tuple[Node, ...]


class MapOf(msgspec.Struct, frozen=True):
    """A map literal."""

    items: tuple[tuple[Node, Node], ...]


Node = Literal | Name | Select | Index | Call | Macro | ListOf | MapOf

MACROS: Final = frozenset({"all", "exists", "exists_one", "filter", "map"})
_KEYWORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=", "in")


def parse(text: str) -> Node:
    """The tree of ``text``.

    Raises:
        CelError: naming the offending token and its position.
    """
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._position = 0
        self._depth = 0

    def whole(self) -> Node:
        node = self._ternary()
        if self._next.kind != "end":
            raise self._unexpected(self._next)
        return node

    @property
    def _next(self) -> Token:
        return self._tokens[self._position]

    def _take(self) -> Token:
        token = self._next
        self._position += 1
        return token

    def _at(self, *signs: str) -> bool:
        token = self._next
        return token.kind in {"op", "name"} and token.value in signs

    def _accept(self, sign: str) -> bool:
        if self._next.kind == "op" and self._next.value == sign:
            self._position += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise self._unexpected(self._next, f"expected {sign!r}")

    def _unexpected(self, token: Token, why: str = "") -> CelError:
        what = "end of expression" if token.kind == "end" else repr(token.value)
        hint = f", {why}" if why else ""
        return CelError(f"unexpected {what} at {token.at}{hint} in {self._text!r}")

    def _ternary(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CelError(f"nested deeper than {MAX_DEPTH}: {self._text!r}")
        condition = self._or()
        if self._accept("?"):
            then = self._or()
            self._expect(":")
            condition = Call("?:", (condition, then, self._ternary()))
        self._depth -= 1
        return condition

    def _or(self) -> Node:
        node = self._and()
        while self._accept("||"):
            node = Call("||", (node, self._and()))
        return node

    def _and(self) -> Node:
        node = self._relation()
        while self._accept("&&"):
            node = Call("&&", (node, self._relation()))
        return node

    def _relation(self) -> Node:
        node = self._sum()
        while self._at(*_COMPARISONS):
            sign = str(self._take().value)
            node = Call(sign, (node, self._sum()))
        return node

    def _sum(self) -> Node:
        node = self._product()
        while self._at("+", "-"):
            sign = str(self._take().value)
            node = Call(sign, (node, self._product()))
        return node

    def _product(self) -> Node:
        node = self._unary()
        while self._at("*", "/", "%"):
            sign = str(self._take().value)
            node = Call(sign, (node, self._unary()))
        return node

    def _unary(self) -> Node:
        signs: list[str] = []
        while self._next.kind == "op" and self._next.value in {"!", "-"}:
            signs.append(str(self._take().value))
        node = self._member()
        for sign in reversed(signs):
            node = Call("!_" if sign == "!" else "-_", (node,))
        return node

    def _member(self) -> Node:
        node = self._primary()
        while True:
            if self._accept("."):
                if self._next.kind == "op" and self._next.value == "?":
                    raise CelError(f"optional selection '.?' is not supported in {self._text!r}")
                node = self._selection(node)
            elif self._accept("["):
                node = Index(node, self._ternary())
                self._expect("]")
            else:
                return node

    def _selection(self, operand: Node) -> Node:
        token = self._take()
        if token.kind != "name":
            raise self._unexpected(token, "expected a field name")
        name = str(token.value)
        if not self._accept("("):
            return Select(operand, unescape(name))
        args = self._arguments(")")
        if name in MACROS and args and isinstance(args[0], Name):
            return _macro(name, operand, args, self._text)
        return Call(name, args, operand)

    def _arguments(self, closing: str) -> tuple[Node, ...]:
        args: list[Node] = []
        while not self._accept(closing):
            args.append(self._ternary())
            if not self._at(closing):
                self._expect(",")
        return tuple(args)

    def _primary(self) -> Node:
        token = self._take()
        if token.kind in {"number", "string"}:
            return Literal(token.value)
        if token.kind == "name":
            return self._named(token)
        match token.value:
            case "(":
                node = self._ternary()
                self._expect(")")
                return node
            case "[":
                return ListOf(self._arguments("]"))
            case "{":
                return self._map()
            case _:
                raise self._unexpected(token)

    def _named(self, token: Token) -> Node:
        name = str(token.value)
        if name in _KEYWORDS:
            return Literal(_KEYWORDS[name])
        if not self._accept("("):
            return Name(name)
        args = self._arguments(")")
        if name != "has":
            return Call(name, args)
        if len(args) != 1 or not isinstance(args[0], Select):
            raise CelError(f"has() wants one field selection in {self._text!r}")
        return Select(args[0].operand, args[0].field, test=True)

    def _map(self) -> Node:
        items: list[tuple[Node, Node]] = []
        while not self._accept("}"):
            key = self._ternary()
            self._expect(":")
            items.append((key, self._ternary()))
            if not self._at("}"):
                self._expect(",")
        return MapOf(tuple(items))


def _macro(kind: str, operand: Node, args: tuple[Node, ...], text: str) -> Macro:
    variable = args[0]
    assert isinstance(variable, Name)
    if len(args) == 3 and kind == "map":
        return Macro(kind, operand, variable.name, args[1], args[2])
    if len(args) != 2:
        raise CelError(f"{kind}() wants a variable and a predicate in {text!r}")
    return Macro(kind, operand, variable.name, args[1])


_ESCAPES: Final = {
    "__underscores__": "__",
    "__dot__": ".",
    "__dash__": "-",
    "__slash__": "/",
}


def unescape(name: str) -> str:
    """The property behind an escaped identifier (``my__dash__field`` is ``my-field``).

    Reserved words are written ``__namespace__``; see the CRD page of the Kubernetes documentation.
    """
    if name.startswith("__") and name.endswith("__") and name not in _ESCAPES:
        return name.strip("_")
    for escaped, plain in _ESCAPES.items():
        name = name.replace(escaped, plain)
    return name
