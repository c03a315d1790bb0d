"""Secrets taken out of texts and objects, with a count of each; pure.

The rule protected: what leaves a cluster in a bundle holds no key, token or password. Secrets are
not read at all; this is for those that stand where they should not, such as in the environment of a
sidecar, in a URL, or in a log. It takes out too much rather than too little: a name that sounds
like a secret costs its value, and a word that looks like random bytes is not repeated.

What no pattern can know is a secret without a form, under a name without a hint: a bundle is to be
looked through before it is sent.
"""

from __future__ import annotations

import base64
import binascii
import functools
import itertools
import json
import re
import string
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    Note = Callable[[str, Callable[[], int]], str]
    """Counts one, whose line can be asked for; the words that stand for it."""

PRIVATE_KEY: Final = "private key"
ACCESS_KEY: Final = "access key"
BEARER: Final = "token of a bearer"
BASIC: Final = "user and password"
WEB_TOKEN: Final = "web token"  # noqa: S105 -- the name of a sort
IN_URL: Final = "password in a URL"
SIGNATURE: Final = "signed request"
BY_NAME: Final = "value with a secret-like name"
RANDOM: Final = "random word"
BINARY: Final = "binary data"

PLACES_MAX: Final = 10
"""Places of one sort in one file that are named; the others are counted."""
PLACE_CHARS_MAX: Final = 200
KEY_LINES_MAX: Final = 200
DEPTH_MAX: Final = 40
"""Of objects within objects and within strings; what is deeper is left out."""

_WORDS: Final = (
    "password", "passwd", "passphrase", "pass", "pwd", "secret", "token", "credential",
    "authorization", "cookie", "signature",
    *(f"{kind}{mark}key" for mark in ("", "_", "-", ".") for kind in (
        "api", "access", "account", "private", "encryption", "signing", "shared", "master"
    )),
)  # fmt: skip
_ANY = "|".join(r"pass(?![a-z])" if word == "pass" else re.escape(word) for word in _WORDS)
_REST = r"[\w.\-]{0,128}"
_ENV_WORDS = re.compile(rf"{_ANY}|key|auth|dsn|conn(?:ection)?_?str|salt", re.IGNORECASE)
_NAMED = re.compile(rf"(?:{_ANY}){_REST}$", re.IGNORECASE)
_HARMLESS = re.compile(
    r"(?:files?|paths?|dir|names?|refs?|namespace|seconds|_ms|count|bytes|size|policy|type|version"
    r"|expir\w*|ttl|mode|algorithm)$",
    re.IGNORECASE,
)
"""Ends of names that stand beside a secret and are none."""
_KEPT_VALUE = (
    r"(?!\\*[\"']?\[redacted|\\*[\"']{2}|\[(?:[\s\]{]|\Z)|{(?:[\s}\"'\\]|\Z)|\$[({]"
    r"|[|>][+-]?\d?[ \t]*(?:\n|\Z)|\\*[\"']?(?:null|none|true|false)(?![^\s,;}\]\"'\\]))"
)
"""What stands for no value, and the beginnings of objects, whose parts have names of their own."""
_QUOTED = (
    r"\"(?:[^\"\\\n]|\\[^\n])*+\""
    r"|'(?:[^'\\\n]|\\[^\n]|'')*+'"
    r"|(?P<q>\\+[\"'])[^\n]{0,4096}?(?<!\\)(?P=q)"
    r"|\\*[\"'][^\n]*"  # the end of the text came first
)
_PAIR = re.compile(
    rf"(?P<name>(?:{_ANY}){_REST})"
    rf"(?P<mid>(?P<nq>\\*[\"'])?[ \t]{{0,8}}(?>=>|[:=])[ \t]{{0,8}}+){_KEPT_VALUE}"
    rf"(?P<value>{_QUOTED}|\[[^\n\]]+\]?|(?(nq)[^\s,}}\]]+|(?:(?<=[: \t][ \t])[^\n]+|\S+)))",
)
_NAME_THEN_VALUE = re.compile(
    rf"(?P<mid>name\\*[\"']?\s*[:=]\s*\\*[\"']?(?P<name>[\w.\-]{{1,128}})\\*[\"']?\s*,?\s*"
    rf"\\*[\"']?value\\*[\"']?\s*[:=]\s*+){_KEPT_VALUE}(?P<value>{_QUOTED}|[^\n]+)",
)
_VALUE_THEN_NAME = re.compile(
    rf"(?P<mid>value\\*[\"']?\s*[:=]\s*+){_KEPT_VALUE}(?P<value>{_QUOTED}|[^\n]{{1,256}}?)"
    r"(?=\s*,?\s*\\*[\"']?name\\*[\"']?\s*[:=]\s*\\*[\"']?(?P<name>[\w.\-]{1,128}))",
)
_BLOCK = re.compile(
    rf"^(?P<mid>(?P<i>[ \t]*)(?:- )?[^\n:]{{0,128}}?(?P<name>(?:{_ANY}){_REST})[\"']?:"
    r"[ \t]*[|>][+-]?\d?[ \t]*\n)"
    r"(?!\s*\[redacted)(?P<value>(?:(?P=i)[ \t]+[^\n]*(?:\n|\Z)|[ \t]*\n)+)",
    re.MULTILINE,
)
_MULTILINE = re.compile(
    rf"(?P<mid>(?P<name>(?:{_ANY}){_REST})[ \t]*=[ \t]*(?P<t>\"\"\"|'''))(?!\[redacted)"
    r"(?P<value>[\s\S]*?)(?=(?P=t)|\Z)",
)
_FLAG = re.compile(r"--?[A-Za-z][\w.\-]*")

_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_END = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_WHOLE_KEY = re.compile(rf"{_BEGIN}[^\n]{{0,16384}}?{_END}")
_KEY_BEGINS = re.compile(_BEGIN)
_KEY_ENDS = re.compile(_END)
_KEY_LINE = re.compile(r".*?[A-Za-z0-9+/=]{16,}\s*|(?:.*\s)?(?:Proc-Type|DEK-Info|Version):.*|\s*")
"""A line of a key, after whatever stands before each line."""
_URL = re.compile(
    r"(?P<mid>\b[a-z][a-z0-9+.\-]{1,30}://)(?!\[redacted)"
    r"(?P<value>[^\s/\"'<>@:]{0,256}:(?!\d{1,5}[/?#])[^\s\"'<>]{0,512}|[^\s/\"'<>@:]{1,512})(?=@)",
)
_WORD = re.compile(r"(?<![A-Za-z0-9_+/\-])[A-Za-z0-9_+/\-]{32,}")


class Redacted(msgspec.Struct, frozen=True):
    """Secrets of one sort in one file.

    Attributes:
        what: the sort.
        count: how many.
        places: of the first ones: a line of a text, or a path in an object.
    """

    file: str
    what: str
    count: int
    places: tuple[str, ...]


def mark(what: str) -> str:
    """The words that stand where a secret stood."""
    return f"[redacted {what}]"


@functools.lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether what has this name may be a secret."""
    found = _NAMED.search(name)
    return found is not None and _HARMLESS.search(name) is None


def is_secret_variable(name: str) -> bool:
    """The same of an environment variable, or a header, whose names say less."""
    return _ENV_WORDS.search(name) is not None and _HARMLESS.search(name) is None


class Redactor:
    """Takes secrets out, and counts them by file.

    The result of each method is safe to be given to it again, and then unchanged.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._places: dict[tuple[str, str], list[str]] = {}

    def found(self) -> list[Redacted]:
        """All that was taken out until now."""
        return [
            Redacted(file, what, count, tuple(self._places[file, what]))
            for (file, what), count in sorted(self._counts.items())
        ]

    def _note(self, file: str, what: str, place: str | Callable[[], str]) -> str:
        key = file, what
        self._counts[key] = self._counts.get(key, 0) + 1
        places = self._places.setdefault(key, [])
        if len(places) < PLACES_MAX:
            told = (place if isinstance(place, str) else place())[:PLACE_CHARS_MAX]
            if told not in places:
                places.append(told)
        return mark(what)

    def text(self, file: str, text: str, place: str = "") -> str:
        """A text without secrets.

        Args:
            file: where it will stand.
            text: any.
            place: where it stands there; empty if it is the whole file, whose lines are told then.
        """

        def note(what: str, line: Callable[[], int]) -> str:
            return self._note(file, what, place or (lambda: f"line {line()}"))

        if _is_plain(text, _lower(text)):
            return text
        text = _without_keys(text, note)
        for pattern in _OVER_LINES:
            text = pattern.replaced(text, _lower(text), note, 1)
        lines = text.split("\n")
        for number, line in enumerate(lines):
            lines[number] = _line_without(line, note, number + 1)
        return "\n".join(lines)

    def value(self, file: str, value: Any, place: str = "", depth: int = 0) -> Any:
        """A JSON value without secrets; keys of objects are kept."""
        if depth > DEPTH_MAX:
            return "[left out: too deep]"
        match value:
            case dict():
                return self._mapping(file, value, place, depth)
            case list():
                return self._list(file, value, place, depth)
            case str():
                return self._string(file, value, place or "value", depth)
        return value

    def _mapping(self, file: str, value: dict[str, Any], place: str, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        name = value.get("name") if "value" in value else None
        for key, part in value.items():
            here = f"{place}.{key}" if place else key
            if key == "binaryData" and isinstance(part, dict):
                result[key] = {one: self._note(file, BINARY, f"{here}.{one}") for one in part}
            elif key == "value" and isinstance(name, str) and is_secret_variable(name):
                result[key] = self._secret(file, part, f"{place}[{name}]", depth)
            elif is_secret_name(key):
                result[key] = self._secret(file, part, here, depth)
            else:
                result[key] = self.value(file, part, here, depth + 1)
        return result

    def _list(self, file: str, value: list[Any], place: str, depth: int) -> list[Any]:
        result: list[Any] = []
        before: Any = None
        for number, part in enumerate(value):
            here = f"{place}[{number}]"
            is_flag = isinstance(before, str) and _FLAG.fullmatch(before) is not None
            if is_flag and isinstance(part, str) and is_secret_name(before.lstrip("-")):
                result.append(self._secret(file, part, here, depth))
            else:
                result.append(self.value(file, part, here, depth + 1))
            before = part
        return result

    def _secret(self, file: str, value: Any, place: str, depth: int) -> Any:
        """A value that is secret by its name; objects in it have names of their own."""
        match value:
            case None | bool() | "" | "true" | "false":
                return value
            case dict():
                return self.value(file, value, place, depth + 1)
            case list() if depth < DEPTH_MAX:
                return [self._secret(file, part, place, depth + 1) for part in value]
            case str() if value.startswith("[redacted "):
                return value
        return self._note(file, BY_NAME, place)

    def _string(self, file: str, text: str, place: str, depth: int) -> str:
        if text[:1] in ("{", "["):
            try:
                inner = json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                clean = self.value(file, inner, place, depth + 1)
                text = text if clean == inner else json.dumps(clean, ensure_ascii=False)
        return self.text(file, text, place)


def _line_without(line: str, note: Note, number: int) -> str:
    low = _lower(line)
    if _is_plain(line, low):
        return line
    for pattern in _IN_LINES:
        clean = pattern.replaced(line, low, note, number)
        if clean != line:
            line, low = clean, _lower(clean)
    return line


def _quote(value: str) -> str:
    """The quotes around a value, so that what is left can still be parsed."""
    found = re.match(r"\\*[\"']", value)
    return found[0] if found is not None and value.endswith(found[0]) and len(value) > 1 else ""


def _without_keys(text: str, note: Note) -> str:
    """Private keys: whole ones, and those of which the begin or the end is cut off."""
    if "PRIVATE KEY" not in text:
        return text
    whole = text
    text = _WHOLE_KEY.sub(
        lambda match: note(PRIVATE_KEY, functools.partial(_line_at, whole, match.start(), 1)), text
    )
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        line = lines[number]
        told = functools.partial(note, PRIVATE_KEY, functools.partial(int, number + 1))
        if begins := _KEY_BEGINS.search(line):
            lines[number] = line[: begins.start()] + told()
            number = _clear_after(lines, number + 1)
        elif ends := _KEY_ENDS.search(line):
            lines[number] = told() + line[ends.end() :]
            _clear_before(lines, number)
        number += 1
    return "\n".join(lines)


def _clear_after(lines: list[str], first: int) -> int:
    """The lines of a key that has begun; the last of them."""
    reach = range(first, min(len(lines), first + KEY_LINES_MAX))
    for number in reach:
        if ends := _KEY_ENDS.search(lines[number]):
            lines[first:number] = [""] * (number - first)
            lines[number] = lines[number][ends.end() :]
            return number
        if _KEY_BEGINS.search(lines[number]):
            break
    for number in reach:  # it is cut off
        if _KEY_BEGINS.search(lines[number]) or not _KEY_LINE.fullmatch(lines[number]):
            return number - 1
        lines[number] = ""
    return max(first - 1, reach.stop - 1)


def _clear_before(lines: list[str], end: int) -> None:
    """The lines of a key whose begin is cut off; the last of them may be short."""
    for number in range(end - 1, max(-1, end - KEY_LINES_MAX), -1):
        if number < end - 1 and not _KEY_LINE.fullmatch(lines[number]):
            return
        lines[number] = ""


def _is_basic(match: re.Match[str]) -> bool:
    try:
        return b":" in base64.b64decode(match["value"], validate=True)
    except (binascii.Error, ValueError):
        return False


def _is_random(match: re.Match[str]) -> bool:
    """Whether a long word mixes letters of both cases, as neither names nor paths do."""
    word = match[0]
    kinds = [
        "u" if c.isupper() else "l" if c.islower() else "d" if c.isdigit() else "" for c in word
    ]
    if kinds.count("u") < 4 or kinds.count("l") < 4:
        return False
    changes = sum(one != two for one, two in itertools.pairwise(kinds))
    return kinds.count("d") >= 2 or changes * 5 >= len(word) * 2


class _Pattern(msgspec.Struct, frozen=True):
    """A sort of secret in a text.

    Attributes:
        needles: words of which one has to be there, in lower case; they are sought much faster
            than an expression. Empty for none.
        is_one: whether a match is one.
        folded: the expression is of the text in lower case.
    """

    what: str
    regex: re.Pattern[str]
    needles: tuple[str, ...] = ()
    is_one: Callable[[re.Match[str]], bool] = lambda _: True
    folded: bool = False

    def replaced(self, text: str, low: str, note: Note, line: int) -> str:
        """A text, which begins at a line, without them."""
        if self.needles and not any(needle in low for needle in self.needles):
            return text
        group = "value" if "value" in self.regex.groupindex else 0
        parts, done = [], 0
        for match in self.regex.finditer(low if self.folded else text):
            if not self.is_one(match):
                continue
            begin, end = match.span(group)
            told = note(self.what, functools.partial(_line_at, text, begin, line))
            if self.regex is _BLOCK:
                last = "\n" if text[end - 1] == "\n" else ""
                told = f"{match['i']}  {told}{last}"
            quote = _quote(text[begin:end]) if group else ""
            parts += [text[done:begin], quote, told, quote]
            done = end
        return "".join([*parts, text[done:]])


def _line_at(text: str, at: int, first: int) -> int:
    return text.count("\n", 0, at) + first


def _lower(text: str) -> str:
    """In lower case, as far as ASCII goes, and every character at its place."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


_LOWER: Final = {ord(char): ord(char.lower()) for char in string.ascii_uppercase}


def _by_name(regex: re.Pattern[str], needles: tuple[str, ...] = _WORDS) -> _Pattern:
    return _Pattern(
        BY_NAME, regex, needles, lambda match: is_secret_name(match["name"]), folded=True
    )


def _of_variable(regex: re.Pattern[str]) -> _Pattern:
    return _Pattern(
        BY_NAME, regex, ("value",), lambda match: is_secret_variable(match["name"]), folded=True
    )


_OVER_LINES: Final = (
    _by_name(_MULTILINE, ('"""', "'''")),
    _by_name(_BLOCK, (": |", ":|", ": >", ":>")),
    _of_variable(_NAME_THEN_VALUE),
    _of_variable(_VALUE_THEN_NAME),
)
_IN_LINES: Final = (
    _by_name(_PAIR),
    _Pattern(IN_URL, _URL, ("://",), folded=True),
    _Pattern(
        SIGNATURE,
        re.compile(
            r"(?P<mid>[?&;](?:X-Amz-(?:Signature|Security-Token|Credential)|X-Goog-(?:Signature"
            r"|Credential)|AWSAccessKeyId|OSSAccessKeyId|Signature|sig|key|code)=)(?!\[redacted)"
            r"(?P<value>[^&\s\"'<>]+)",
            re.IGNORECASE,
        ),
        ("signature=", "credential=", "keyid=", "sig=", "key=", "code="),
    ),
    _Pattern(WEB_TOKEN, re.compile(r"\beyJ[\w\-]{6,}\.[\w\-]{6,}(?:\.[\w\-]*)*"), ("eyj",)),
    _Pattern(
        BEARER,
        re.compile(
            r"(?P<mid>\bbearer[ \t]{1,8}+)(?!\[redacted)(?P<value>[^\s\"',;\\]{6,})", re.IGNORECASE
        ),
        ("bearer",),
    ),
    _Pattern(
        BASIC,
        re.compile(r"(?P<mid>\bbasic[ \t]{1,8})(?P<value>[A-Za-z0-9+/]{6,}={0,2})", re.IGNORECASE),
        ("basic",),
        _is_basic,
    ),
    _Pattern(
        BASIC,
        re.compile(
            r"(?P<mid>(?<![\w\-])(?:-u|--user|--proxy-user)[ =])(?!\[redacted)"
            r"(?P<value>[^\s:]+:\S+)"
        ),
        ("-u", "-user"),
    ),
    _Pattern(
        ACCESS_KEY,
        re.compile(
            r"(?<![A-Za-z0-9])(?:(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}|LTAI[A-Za-z0-9]{12,}"
            r"|AIza[\w\-]{30,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}"
            r"|xox[a-z]-[\w\-]{10,}|sk_live_\w{10,}|npm_[A-Za-z0-9]{20,}|hvs\.[\w\-]{16,})"
        ),
        (
            "akia",
            "asia",
            "aroa",
            "aida",
            "ltai",
            "aiza",
            "gh",
            "glpat-",
            "xox",
            "sk_",
            "npm_",
            "hvs.",
        ),
    ),
    _Pattern(RANDOM, _WORD, (), _is_random),
)

_ALL: Final = (*_OVER_LINES, *_IN_LINES)
assert all(pattern.needles for pattern in _ALL if pattern.regex is not _WORD)
_SOUGHT: Final = {"private key", *(needle for pattern in _ALL for needle in pattern.needles)}
_NEEDLES: Final = tuple(
    sorted({"key" if needle.endswith("key") else needle for needle in _SOUGHT}, key=len)
)


def _is_plain(text: str, low: str) -> bool:
    """Whether no expression is worth a try, as of nearly all lines and values."""
    return not any(map(low.__contains__, _NEEDLES)) and _WORD.search(text) is None
