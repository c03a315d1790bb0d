"""Filters that are ready for use: compiled once, asked for each record.

Rule protected: a record is never decoded for a filter. Of its bytes only the properties are looked
at, and of these only the ones that the filter names.

What one look at a queue may cost is bounded: the more an expression asks, and the longer the
properties are, the fewer records it examines, at least one.
"""

import re

from gantry_protocol.records import properties_at

from gantry_broker.clients.core.filters.evaluation import NoAnswerError, function_of
from gantry_broker.clients.core.filters.grammar import parse
from gantry_broker.store.contract import GetResult, GetStatus, ReadLimits

SQL92 = "SQL92"
COMPILED_CHARS_MAX = 1_000_000  # of filters that are kept, 50 MB; others are compiled again
_OTHER_CHARS = 50  # what the shortest filter takes besides
EXAMINED_MAX = 800  # records in one look, as of upstream's
LOOK_WORK = 2_000_000  # for the records of one read, in units of about 5 ns: 10 ms at worst
_TERM_WORK = 60
_CONTAINS_WORK = 3  # for each byte of the properties; finding a name takes 1
_USUAL_BYTES = 256  # of properties


class SqlFilter:
    """A filter; see the module.

    Args:
        source: its text.

    Attributes:
        records_max: to be read for one look.
        source: its text.

    Raises:
        FilterError: it does not parse, or is too large.
    """

    __slots__ = ("_byte_work", "_needles", "_own_work", "_run", "records_max", "source")

    def __init__(self, source: str) -> None:
        parsed = parse(source)
        names = parsed.names
        self.source = source
        self._needles = [b"\x02%b\x01" % name.encode() for name in names]
        self._run = function_of(parsed.root, {name: at for at, name in enumerate(names)})
        self._own_work = _TERM_WORK * (parsed.terms + len(names))
        self._byte_work = len(names) + _CONTAINS_WORK * parsed.contains
        self.records_max = min(EXAMINED_MAX, LOOK_WORK // self.work(_USUAL_BYTES))

    def work(self, size_bytes: int) -> int:
        """The most that so many bytes of properties cost, as ``LOOK_WORK`` counts."""
        return self._own_work + self._byte_work * size_bytes

    def passes(self, properties: bytes) -> bool:
        """Whether a message with these encoded properties is wanted."""
        text = b"\x02" + properties
        try:
            return self._run([_value(text, needle) for needle in self._needles]) is True
        except NoAnswerError:
            return False


def _value(text: bytes, needle: bytes) -> str | None:
    """The value of a property, as ``decode_properties`` has it: the last one that is not empty."""
    at = text.rfind(needle)
    if at < 0:
        return None
    start = at + len(needle)
    stop = text.find(b"\x02", start)
    value = text[start:stop] if stop >= 0 else text[start:]
    if not value:  # which no client writes; a loop over thousands of them would take long
        found = re.match(b"(?s:.*)" + re.escape(needle) + b"([^\x02]+)", text)
        return None if found is None else found[1].decode("utf-8", "replace")
    return value.decode("utf-8", "replace")


def passed(result: GetResult, wanted: SqlFilter, limits: ReadLimits) -> GetResult:
    """The part of a read that passes; the reader goes on behind what was examined.

    Args:
        result: what was found, whatever the filter says; anything else stays as it is.
        wanted: the filter.
        limits: how much to return.
    """
    if result.status is not GetStatus.FOUND:
        return result
    kept: list[bytes] = []
    kept_bytes, at, work, next_offset = 0, 0, 0, result.next_offset
    while at < len(result.body):
        size, queue_offset, properties = properties_at(result.body, at)
        work += wanted.work(len(properties))
        if at and work > LOOK_WORK:
            next_offset = queue_offset
            break
        if wanted.passes(properties):
            if kept and (len(kept) >= limits.max_count or kept_bytes + size > limits.max_bytes):
                next_offset = queue_offset
                break
            kept.append(result.body[at : at + size])
            kept_bytes += size
        at += size
    return GetResult(
        GetStatus.FOUND if kept else GetStatus.NO_MATCHED_MESSAGE,
        next_offset,
        result.min_offset,
        result.max_offset,
        b"".join(kept),
        len(kept),
        result.remark,
    )


class Filters:
    """Filters that were used lately, and what came of them.

    Args:
        chars_max: of all their texts: a character takes up to 50 bytes, compiled.

    Attributes:
        examined: records that were read to be filtered, ever.
        passed: of these, those that passed and fitted into an answer.
    """

    def __init__(self, chars_max: int) -> None:
        """None yet."""
        self.examined = 0
        self.passed = 0
        self._chars_max = chars_max
        self._chars = 0
        self._filters: dict[str, SqlFilter] = {}  # in the order of their last uses

    def __len__(self) -> int:
        return len(self._filters)

    def get(self, source: str) -> SqlFilter:
        """The filter that ``source`` is.

        Raises:
            FilterError: it does not parse, or is too large.
        """
        found = self._filters.pop(source, None)
        if found is None:
            found = SqlFilter(source)
            self._chars += len(source) + _OTHER_CHARS
        self._filters[source] = found
        while self._chars > self._chars_max and len(self._filters) > 1:
            oldest = next(iter(self._filters))
            del self._filters[oldest]
            self._chars -= len(oldest) + _OTHER_CHARS
        return found

    def apply(self, result: GetResult, source: str, limits: ReadLimits) -> GetResult:
        """``passed``, by the filter that ``source`` is."""
        found = passed(result, self.get(source), limits)
        self.examined += result.count
        self.passed += found.count
        return found


FILTERS = Filters(COMPILED_CHARS_MAX)
"""Of this process: what a filter says depends on nothing but its text."""
