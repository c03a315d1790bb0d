"""Patterns with the meaning a real API server gives them.

Go's RE2 has no look-around, no back-references and no possessive quantifiers, and its ``$`` does
not match before a final newline. A pattern that only Python understands is refused here, because it
would be refused when the same CRD reaches a real cluster.
"""

from __future__ import annotations

import re
from functools import lru_cache

_PYTHON_ONLY = re.compile(r"(?<!\\)\(\?(?:=|!|<=|<!|#|>|P=|\()|(?<!\\)\\[1-9]|(?<!\\)[*+?}]\+")
_FINAL_DOLLAR = re.compile(r"(?<!\\)\$$")


class PatternError(Exception):
    """The pattern is not one of RE2's."""


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """``pattern`` compiled.

    Raises:
        PatternError: quoting the pattern and what is wrong with it.
    """
    offending = _PYTHON_ONLY.search(pattern)
    if offending is not None:
        raise PatternError(f"pattern {pattern!r} uses {offending.group()!r}, which RE2 lacks")
    try:
        return re.compile(_FINAL_DOLLAR.sub(r"\\Z", pattern), re.ASCII)
    except re.error as error:
        raise PatternError(f"pattern {pattern!r} does not compile: {error}") from error
