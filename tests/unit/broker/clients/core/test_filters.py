"""Filters in SQL: upstream's answers, a slow model's, and refusals that say where."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from gantry_broker.clients.core.filters import grammar, sql
from gantry_broker.clients.core.filters.evaluation import NoAnswerError, function_of
from gantry_broker.clients.core.filters.grammar import (
    CONTAINS_MAX,
    DEPTH_MAX,
    LISTED_MAX,
    NAMES_MAX,
    TERMS_MAX,
    parse,
)
from gantry_broker.clients.core.filters.sql import Filters, SqlFilter, passed
from gantry_broker.clients.core.filters.tokens import TEXT_MAX, FilterError
from gantry_broker.store.contract import GetResult, GetStatus, ReadLimits
from gantry_protocol.records import (
    MessageRecord,
    decode_properties,
    decode_records,
    encode_properties,
    encode_record,
    properties_at,
)
from hypothesis import given
from hypothesis import strategies as st
from support import sql_model

UPSTREAM = json.loads((Path(__file__).parent / "testdata/sql92.json").read_text("utf-8"))
ANSWERS = {True: "T", False: "F", None: "N"}
# Upstream ignores what follows the first part that is a filter; and it takes no zero with a point.
OURS = {
    "a = 00": "column 6: '0' belongs to nothing before it",
    "a = 0L": "column 6: 'L' belongs to nothing before it",
    "a = 007": "column 6: '0' belongs to nothing before it",
    "b LIKE 'x%'": "column 3: 'LIKE' belongs to nothing before it",
    "a + 1 > 5": "column 3: '+' belongs to nothing before it",
    "a > 5 b": "column 7: 'b' belongs to nothing before it",
    "a > 5 )": "column 7: ')' belongs to nothing before it",
    "a = --5": "column 8: a property, a value or '(' is expected, and not the end",
    "_q='w'AND$p_1='v'": "column 7: 'AND$p_1' belongs to nothing before it",
    "a = 1.5.5": "column 8: '.5' belongs to nothing before it",
    "a = 5e": "column 6: 'e' belongs to nothing before it",
    "a = 5ex": "column 6: 'ex' belongs to nothing before it",
    "a > 0.0": "NTTTFXTTTTNT",
}


def answers(source: str) -> str:
    """What a filter says of each of the properties, in upstream's letters."""
    parsed = parse(source)
    names = parsed.names
    function = function_of(parsed.root, {name: at for at, name in enumerate(names)})
    found = ""
    for properties in UPSTREAM["properties"]:
        try:
            found += ANSWERS[function([properties.get(name) for name in names])]
        except NoAnswerError:
            found += "X"
    return found


@pytest.mark.parametrize(("source", "said"), UPSTREAM["filters"].items())
def test_a_filter_says_what_upstreams_says(source: str, said: str) -> None:
    said = OURS.get(source, said)
    if said.strip("TFNX"):
        with pytest.raises(FilterError, match=r"line \d+, column \d+") as refusal:
            parse(source)
        assert said == "refused" or said in str(refusal.value)
    else:
        assert answers(source) == said


def test_a_message_is_wanted_if_and_only_if_the_answer_is_true() -> None:
    for source, said in UPSTREAM["filters"].items():
        if source in OURS or said == "refused":
            continue
        wanted = SqlFilter(source)
        found = [wanted.passes(encode_properties(p).encode()) for p in UPSTREAM["properties"]]
        assert found == [letter == "T" for letter in said], source


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("a >", "line 1, column 4: a property, a value or '(' is expected, and not the end."),
        ("a > 5\nAND\n  b ! 'x'", "line 3, column 5: '!' begins no word of a filter."),
        ("a = 1 AND b = 'open", "line 1, column 15: a text has no end."),
        ("a = NULL", "line 1, column 5: NULL equals nothing: write IS NULL."),
        ("b > 'x'", "line 1, column 5: only numbers and properties have an order."),
        ("a BETWEEN 5 AND 4", "line 1, column 17: BETWEEN ends below where it begins."),
        ("a > 1e999", "line 1, column 5: '1e999' is out of the range of a double."),
        ("a > " + "9" * 5_000, f"line 1, column 5: '{'9' * 32}...' is more than {2**63 - 1}."),
        ("(" * 9 + "a" + ")" * 8, "line 1, column 19: ')' is expected, and not the end."),
    ],
)
def test_a_refusal_is_one_sentence_that_says_where(source: str, sentence: str) -> None:
    with pytest.raises(FilterError) as refusal:
        parse(source)
    assert str(refusal.value) == f"The SQL filter is refused at {sentence}"


@pytest.mark.parametrize(
    ("at_most", "too_much", "words"),
    [
        pytest.param(
            "a".ljust(TEXT_MAX), "a".ljust(TEXT_MAX + 1), f"{TEXT_MAX} are allowed", id="characters"
        ),
        pytest.param(
            " OR ".join("a" * TERMS_MAX), " OR ".join("a" * (TERMS_MAX + 1)), "terms", id="terms"
        ),
        pytest.param(
            "a IN (" + ",".join(["''"] * LISTED_MAX) + ")",
            "a IN ('') OR a IN (" + ",".join(["''"] * LISTED_MAX) + ")",
            f"more than {LISTED_MAX} texts",
            id="texts of lists",
        ),
        pytest.param(
            "(" * DEPTH_MAX + "a" + ")" * DEPTH_MAX,
            "(" * (DEPTH_MAX + 1) + "a" + ")" * (DEPTH_MAX + 1),
            "deep",
            id="brackets",
        ),
        pytest.param("NOT " * DEPTH_MAX + "a", "NOT " * 2_000 + "a", "deep", id="signs"),
        pytest.param(
            " OR ".join(["a CONTAINS 'x'"] * CONTAINS_MAX),
            " OR ".join(["a CONTAINS 'x'"] * (CONTAINS_MAX + 1)),
            "CONTAINS",
            id="searches",
        ),
        pytest.param(
            " OR ".join(f"a{number}" for number in range(NAMES_MAX)),
            " OR ".join(f"a{number}" for number in range(NAMES_MAX + 1)),
            "properties",
            id="properties",
        ),
        pytest.param("a" + " IS NULL" * 32, "a" + " IS NULL" * 33, "deep", id="chains"),
    ],
)
def test_what_costs_too_much_is_refused(at_most: str, too_much: str, words: str) -> None:
    SqlFilter(at_most).passes(b"a\x01b\x02")
    with pytest.raises(FilterError, match=words):
        parse(too_much)


def test_the_deepest_tree_can_be_evaluated() -> None:
    source = "a = b"
    for _ in range(26):
        source = f"({source}){' = TRUE' * 7}" if len(source) < 1_000 else f"({source}) = TRUE"
    SqlFilter(source).passes(b"a\x01b\x02")


def test_the_larger_a_filter_the_fewer_records_are_looked_at() -> None:
    assert SqlFilter("a = 'x'").records_max == sql.EXAMINED_MAX
    assert 50 < SqlFilter(" OR ".join(["a = 'x'"] * 150)).records_max < 100


def test_the_longer_the_properties_the_fewer_records_are_looked_at() -> None:
    read, limits = _read(*["x" * 9_000] * 10), ReadLimits(32, 10_000)
    few = SqlFilter(" OR ".join(["v CONTAINS 'y'"] * CONTAINS_MAX))
    ends = [passed(read, wanted, limits).next_offset for wanted in (few, SqlFilter("v = 'y'"))]
    assert ends == [12, 20]
    read = _read(*["x" * 32_000] * 2)
    assert passed(read, few, limits).next_offset == 11, "one is always looked at"


@given(st.text(max_size=60) | st.text("aANDORNOTIS()'\",<>=+-.0125eEL*/ \n", max_size=80))
def test_any_text_is_a_filter_or_refused_in_one_sentence(source: str) -> None:
    said = ""
    try:
        SqlFilter(source).passes(b"a\x01b\x02")
    except FilterError as error:
        said = str(error)
    assert not said or re.search(r"^The SQL filter is refused at line \d+, column \d+: .*\.$", said)


SIGNS = [*"ab()=,-", "5", "1.5", "'x'", "<>", ">", "NOT", "AND", "OR", "IN", "IS", "NULL", "TRUE"]
WORDS = st.sampled_from([*SIGNS, "BETWEEN", "CONTAINS", "STARTSWITH"])


@given(st.lists(WORDS, max_size=14), st.binary(max_size=30))
def test_any_words_are_a_filter_or_refused(words: list[str], properties: bytes) -> None:
    try:
        SqlFilter(" ".join(words)).passes(properties)
    except FilterError:
        return


NAMES = st.sampled_from("abc")
VALUES = st.sampled_from(
    ["5", "-5", "05", "5.0", "5.5", "x", "true", "TRUE", "NaN", "-0.0", "0", "1e3", "Infinity"]
    + [str(sign * 2**bits) for bits in (31, 63) for sign in (1, -1)]
    + list(map(str, (" 5", "5f", "5x", "1_0", "٥")))
)
NUMBERS = st.sampled_from(
    [(sql_model.INTEGER, number, str(number)) for number in (0, 5, 2**31 - 1)]
    + [(sql_model.LONG, number, str(number)) for number in (2**31, 2**63 - 1)]
    + [(sql_model.DOUBLE, float(image), image) for image in ("5.0", ".5", "1e3", "5.5")]
).map(lambda found: ("number", found[:2], found[2]))
VALUE = (
    st.tuples(st.just("name"), NAMES)
    | NUMBERS
    | st.tuples(st.just("text"), VALUES)
    | st.tuples(st.just("truth"), st.sampled_from([True, False, None]))
)


def _larger(trees: st.SearchStrategy[sql_model.Tree]) -> st.SearchStrategy[sql_model.Tree]:
    texts = st.lists(VALUES, min_size=1, max_size=6).map(tuple)
    kinds = st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"])
    return (
        st.tuples(st.sampled_from(["not", "null", "minus"]), trees)
        | st.tuples(st.sampled_from(["and", "or", "=", "<", "<=", ">", ">="]), trees, trees)
        | st.tuples(st.just("in"), NAMES, texts, st.booleans())
        | st.tuples(st.just("search"), kinds, trees, VALUES | st.just(""), st.booleans())
    )


@given(
    st.recursive(VALUE, _larger, max_leaves=8),
    st.lists(st.dictionaries(NAMES, VALUES), min_size=1, max_size=4),
)
def test_a_filter_means_what_a_slow_model_says(
    tree: sql_model.Tree, messages: list[dict[str, str]]
) -> None:
    try:
        wanted = SqlFilter(sql_model.text_of(tree))
    except FilterError:
        return
    for properties in messages:
        encoded = encode_properties(properties).encode()
        assert wanted.passes(encoded) == sql_model.matches(tree, properties), properties


@given(st.text("ab\x01\x02c", max_size=24))
def test_properties_are_found_as_all_of_them_are_decoded(text: str) -> None:
    decoded = decode_properties(text)
    for name in ("a", "ab", "c"):
        assert SqlFilter(f"{name} IS NOT NULL").passes(text.encode()) == (name in decoded)
        for value in ("a", "b\x01a", decoded.get(name, "-")):
            found = SqlFilter(f"{name} = '{value}'").passes(text.encode())
            assert found == (decoded.get(name) == value)


def test_a_number_that_is_too_long_has_no_answer_and_takes_no_time() -> None:
    for digits in ("0" * 1_100 + "5", "5" * 30_000, "1" * 2_000 + "x"):
        for source in ("a = 5", "a > 5", "a > 5.0", "a < b"):
            assert not SqlFilter(source).passes(f"a\x01{digits}\x02b\x011\x02".encode())


# ---- records


HOSTS = [("10.0.0.1", 4000), ("fd00::1", 4000)]


@given(
    st.sampled_from(HOSTS),
    st.sampled_from(HOSTS),
    st.sampled_from(["T", "t" * 127, "t" * 128, "t" * 255]),
    st.binary(max_size=20),
    st.text("ab\x01\x02", max_size=20),
    st.integers(0, 2**40),
)
def test_properties_are_read_off_any_record(born, stored, topic, body, properties, offset) -> None:
    record = encode_record(
        MessageRecord(
            topic, 1, body, properties, queue_offset=offset, born_host=born, store_host=stored
        )
    )
    expected = (len(record), offset, properties.encode())
    assert properties_at(b"--" + record + b"--", 2) == expected


def _read(*values: object, end: int = 100) -> GetResult:
    records = [
        encode_record(
            MessageRecord(
                "T",
                body=b"%d" % at,
                properties=f"v\x01{value}\x02",
                queue_offset=10 + at,
                born_host=HOSTS[0],
                store_host=HOSTS[0],
            )
        )
        for at, value in enumerate(values)
    ]
    status = GetStatus.FOUND
    return GetResult(status, 10 + len(values), 3, end, b"".join(records), len(values), "said")


def _kept(result: GetResult) -> list[bytes]:
    return [record.body for record in decode_records(result.body)]


def test_what_passes_is_kept_and_the_reader_goes_on_behind_what_was_looked_at() -> None:
    found = passed(_read(1, 5, 2, 6, 3), SqlFilter("v > 4"), ReadLimits(32, 10_000))
    assert (_kept(found), found.count, found.status) == ([b"1", b"3"], 2, GetStatus.FOUND)
    assert (found.next_offset, found.min_offset, found.max_offset) == (15, 3, 100)
    assert found.remark == "said"


def test_what_does_not_fit_is_looked_at_again() -> None:
    read, wanted = _read(1, 5, 2, 6, 3), SqlFilter("v > 4")
    for limits in (ReadLimits(1, 10_000), ReadLimits(32, 1)):
        found = passed(read, wanted, limits)
        assert (_kept(found), found.next_offset) == ([b"1"], 13)


def test_nothing_that_passes_is_no_match_and_goes_on_all_the_same() -> None:
    found = passed(_read(1, 2), SqlFilter("v > 4"), ReadLimits(32, 10_000))
    assert (found.status, found.body, found.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, b"", 12)
    other = GetResult(GetStatus.OFFSET_TOO_SMALL, 4, 4, 9)
    assert passed(other, SqlFilter("v > 4"), ReadLimits(32, 10_000)) is other


# ---- what is kept


def test_a_filter_is_compiled_once_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(sql, "parse", lambda source: parsed.append(source) or grammar.parse(source))
    kept = Filters(180)
    for source in ("a = 1", "b = 1", "a = 1", "c = 1", "d = 1", "a = 1", "b = 1"):
        assert kept.get(source).source == source
    assert parsed == ["a = 1", "b = 1", "c = 1", "d = 1", "b = 1"], "who was not used goes first"
    assert len(kept) == 3
    with pytest.raises(FilterError):
        kept.get("a =")
    kept.get("a = '" + "x" * 500 + "'")
    assert len(kept) == 1
