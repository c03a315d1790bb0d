"""JSON as Java writes it: bare numbers, and whole objects, as the keys of an object.

fastjson writes ``{1:"a"}`` for a map with numeric keys and ``{{"topic":"T",…}:{…}}`` for one keyed
by ``MessageQueue``. :func:`quote_keys` turns both into standard JSON in one pass, an object key
becoming the string of its text. Text that is no such JSON comes out as something a JSON decoder
refuses; this module judges nothing itself.
"""

import json
import re

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BARE_KEY = re.compile(rb"-?[0-9]+(?=\s*:)")
_UNINTERESTING = re.compile(rb'[^"{}\[\],]+')


def quote_keys(data: bytes) -> bytes:
    """``data`` with every bare number key and every object key quoted."""
    out: list[bytes] = []
    stack = bytearray()  # the open brackets
    position = 0
    while position < len(data):
        char = data[position : position + 1]
        if char in b'"':
            end = _string_end(data, position)
        elif char in b"{[,":
            if char != b",":
                stack += char
            out.append(char)
            position = _copy_blanks(data, position + 1, out)
            if stack.endswith(b"{"):
                position = _copy_key(data, position, out)
            continue
        elif char in b"}]":
            if stack:
                stack.pop()
            end = position + 1
        else:
            found = _UNINTERESTING.match(data, position)
            assert found is not None
            end = found.end()
        out.append(data[position:end])
        position = end
    return b"".join(out)


def _copy_blanks(data: bytes, position: int, out: list[bytes]) -> int:
    start = position
    while data[position : position + 1].isspace():
        position += 1
    out.append(data[start:position])
    return position


def _copy_key(data: bytes, position: int, out: list[bytes]) -> int:
    """Quote the key at ``position`` if it is a number or an object; return where to go on."""
    number = _BARE_KEY.match(data, position)
    if number is not None:
        out.append(b'"' + number.group() + b'"')
        return number.end()
    if data[position : position + 1] == b"{":
        end = _object_end(data, position)
        text = data[position:end].decode("utf-8", "replace")
        out.append(json.dumps(text, ensure_ascii=False).encode())
        return end
    return position


def _object_end(data: bytes, position: int) -> int:
    """Just after the bracket that closes the object at ``position``, or the end of the text."""
    depth = 0
    while position < len(data):
        char = data[position : position + 1]
        if char == b'"':
            position = _string_end(data, position)
            continue
        depth += (char == b"{") - (char == b"}")
        position += 1
        if not depth:
            break
    return position


def _string_end(data: bytes, position: int) -> int:
    found = _STRING.match(data, position)
    return len(data) if found is None else found.end()
