"""Receipt handles and ids of transactions: what clients carry for the server."""

from __future__ import annotations

import pytest
from gantry_proxy.core.handles import CHARS_MAX, Transaction, changed, pack, parse, receipt, unpack
from gantry_proxy.core.refusals import CallRefused

TEXT = receipt(7, 50, 10_000, 0, ("orders-a", 2, 9, 4_096))


def test_a_handle_says_everything() -> None:
    handle = parse(TEXT)
    assert (handle.broker_name, handle.queue_id, handle.offset) == ("orders-a", 2, 9)
    assert handle.physical_offset == 4_096


def test_a_change_of_the_time_is_another_delivery() -> None:
    assert changed(parse(TEXT), 60, 5) == "7 60 5 0 0 orders-a 2 9 4096"


def test_a_handle_of_a_lite_topic_names_it_also_when_it_is_put_off() -> None:
    text = receipt(7, 50, 10_000, 999, ("orders-a", 0, 9, 9))
    handle = parse(f"{text} a-session")
    assert (handle.text, handle.lite_topic) == (text, "a-session")
    later = parse(changed(handle, 60, 5))
    assert later.lite_topic == "a-session"
    assert later.text == "7 60 5 999 0 orders-a 0 9 9"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        TEXT.replace("10000 0 0", "10000 999 0") + " a$b",
        TEXT + " 1",
        TEXT.rsplit(" ", 1)[0],
        TEXT.replace(" 50 ", " -50 "),
        TEXT.replace(" 2 ", " two "),
        TEXT.replace("4096", "9" * 20),
        TEXT.replace("4096", "٣"),
        TEXT.replace("orders-a", "o" * CHARS_MAX),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(CallRefused) as refused:
        parse(text)
    assert refused.value.code == "INVALID_RECEIPT_HANDLE"


def test_a_transaction_id_says_everything() -> None:
    transaction = Transaction("orders-a", "orders", 3, 4_096, "01AB", "01AB")
    assert unpack(pack(transaction)) == transaction


LONG = pack(Transaction("b", "t", 1, 2, "m" * 2048, ""))


@pytest.mark.parametrize("text", ["", "é", "AAAA", "W10=", LONG])
def test_texts_that_are_no_transaction_are_refused(text: str) -> None:
    with pytest.raises(CallRefused) as refused:
        unpack(text)
    assert refused.value.code == "INVALID_TRANSACTION_ID"
