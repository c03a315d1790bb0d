"""Tokens of CEL, after the language definition's lexical grammar (no bytes, no unsigned)."""

from __future__ import annotations

import ast
import re
from typing import Final

import msgspec


class CelError(Exception):
    """The rule is not valid CEL, or uses something outside the supported subset."""


class Token(msgspec.Struct, frozen=True):
    """``kind`` is one of number, string, name, op, end; ``value`` the literal or the text."""

    kind: str
    value: str | int | float
    at: int


_TOKEN: Final = re.compile(
    r"""(?P<space>[\s]+|//[^\n]*)
      |(?P<number>0x[0-9a-fA-F]+|\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)
      |(?P<string>[rR]?(?:'''(?:.|\n)*?'''|\"\"\"(?:.|\n)*?\"\"\"|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"))
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*|`[A-Za-z0-9_.\-/ ]+`)
      |(?P<op>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])""",
    re.VERBOSE,
)


def tokenize(text: str) -> list[Token]:
    """All tokens of ``text``, ending with an ``end`` token.

    Raises:
        CelError: at the first character that starts no token.
    """
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise CelError(f"unexpected character {text[position]!r} at {position} in {text!r}")
        kind = str(match.lastgroup)
        if kind != "space":
            tokens.append(Token(kind, _value(kind, match.group()), position))
        position = match.end()
    tokens.append(Token("end", "", len(text)))
    return tokens


def _value(kind: str, text: str) -> str | int | float:
    if kind == "number":
        if text.startswith("0x"):
            return int(text, 16)
        return int(text) if text.isdigit() else float(text)
    if kind == "string":
        # CEL's escapes are those of Python for everything rules use; "R" is not a Python prefix
        # that literal_eval treats differently.
        return str(ast.literal_eval(text))
    return text.strip("`") if kind == "name" else text
