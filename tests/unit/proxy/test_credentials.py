"""Signatures of calls, as official clients make them."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from gantry_proxy.core.credentials import (
    AUTHORIZATION,
    AUTHORIZATION_CHARS_MAX,
    DATE_TIME,
    DATE_TIME_CHARS_MAX,
    CallCredentials,
    UnreadableError,
    claimed_user,
    credentials,
)

WHEN, SECRET = "20231227T194619Z", "secret-of-ada"
SIGNATURE = hmac.new(SECRET.encode(), WHEN.encode(), hashlib.sha1).hexdigest()


def metadata(
    user: str = "ada", signature: str = SIGNATURE, when: str | None = WHEN
) -> dict[str, str]:
    text = f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders={DATE_TIME}, Signature={signature}"
    return {AUTHORIZATION: text} | ({} if when is None else {DATE_TIME: when})


def test_upstreams_vector() -> None:
    """The header of upstream's test of its builder, and what that builder reads."""
    found = credentials(metadata("abc", "D18A9CBCDDBA9041D6693268FEF15A989E64430B"))
    assert found == CallCredentials(
        "abc", WHEN.encode(), bytes.fromhex("d18a9cbcddba9041d6693268fef15a989e64430b")
    )


@pytest.mark.parametrize("user", ["ada", "ada//Rocketmq", "ada/region/service"])
@pytest.mark.parametrize("signature", [SIGNATURE, SIGNATURE.upper()])
def test_all_clients_ways_to_write_it(user: str, signature: str) -> None:
    """Go and C++ write the user with slashes; capitals are each language's own choice."""
    found = credentials(metadata(user, signature))
    assert found is not None
    assert found.user == "ada"
    assert found.are_of(SECRET)
    assert not found.are_of("another-secret")


def test_the_time_is_signed_and_nothing_else() -> None:
    found = credentials(metadata(when="20231227T194620Z"))
    assert found is not None
    assert not found.are_of(SECRET)


@pytest.mark.parametrize("signature", ["", "00", SIGNATURE[:-2]])
def test_half_a_signature_is_none(signature: str) -> None:
    found = credentials(metadata(signature=signature))
    assert found is not None
    assert not found.are_of(SECRET)


def test_who_signs_nothing_is_nobody() -> None:
    assert credentials({}) is None
    assert credentials({AUTHORIZATION: "", DATE_TIME: WHEN}) is None
    assert claimed_user({}) == ""
    assert claimed_user(metadata()) == "ada"


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(metadata(when=None), id="no time"),
        pytest.param(metadata(when=""), id="an empty time"),
        pytest.param(metadata(when="1" * (DATE_TIME_CHARS_MAX + 1)), id="a long time"),
        pytest.param(metadata(user=""), id="nobody's"),
        pytest.param(metadata(user="/ada"), id="a service's"),
        pytest.param(metadata(signature="ü"), id="no number"),
        pytest.param({AUTHORIZATION: "Bearer token", DATE_TIME: WHEN}, id="another scheme"),
        pytest.param({AUTHORIZATION: "MQv2-HMAC-SHA1", DATE_TIME: WHEN}, id="a scheme alone"),
        pytest.param({AUTHORIZATION: "x Credential=ada,c", DATE_TIME: WHEN}, id="no value"),
        pytest.param(metadata(user="a" * AUTHORIZATION_CHARS_MAX), id="long"),
    ],
)
def test_what_is_no_authorization(shown: dict[str, str]) -> None:
    with pytest.raises(UnreadableError) as caught:
        credentials(shown)
    assert SIGNATURE not in str(caught.value)
    assert claimed_user(shown) == ""


def test_what_is_shown_of_credentials_makes_no_call() -> None:
    found = credentials(metadata())
    assert SIGNATURE not in repr(found)
    assert WHEN not in repr(found)
