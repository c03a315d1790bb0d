"""Names of members, as certificates have them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gantry_protocol.member_tls.names import MemberKind, MemberName, Names
from gantry_protocol.tls.alt_names import uris_of
from gantry_protocol.tls.der import first_certificate
from support.certificates import MemberAuthority

if TYPE_CHECKING:
    from collections.abc import Sequence

BROKER = MemberName(MemberKind.BROKER, "prod", "orders")
FRONT = MemberName(MemberKind.FRONT, "prod")


@pytest.mark.parametrize(
    ("uris", "wanted", "has"),
    [
        (["gantry://mq/controller"], MemberName(MemberKind.CONTROLLER), True),
        (["gantry://mq/controller"], BROKER, False),
        (["gantry://mq/broker/prod/orders"], BROKER, True),
        (["gantry://mq/broker/prod/orders"], MemberName(MemberKind.BROKER), True),
        (["gantry://mq/broker/prod/orders"], FRONT, False),
        (["gantry://mq/broker/test/orders"], BROKER, False),
        (["gantry://mq/broker/prod/orders2"], BROKER, False),
        (
            ["gantry://mq/broker/prod/orders"],
            MemberName(MemberKind.BROKER, "prod", "orders2"),
            False,
        ),
        (["gantry://mq/broker/prod/bills", "gantry://mq/broker/prod/orders"], BROKER, True),
        (["gantry://mq/broker/prod/*"], BROKER, True),
        (["gantry://mq/broker/prod/ord*"], BROKER, True),
        (["gantry://mq/broker/prod/bill*"], BROKER, False),
        (["gantry://mq/broker/test/*"], BROKER, False),
        (["gantry://mq/broker/a%20b/c%2Fd"], MemberName(MemberKind.BROKER, "a b", "c/d"), True),
        (
            ["https://other.example/x", "gantry://mq/front/prod"],
            MemberName(MemberKind.FRONT, "prod"),
            True,
        ),
        (["gantry://mq/front/prod"], MemberName(MemberKind.FRONT, "test"), False),
    ],
)
def test_certificate_is_for_whom_it_names(
    uris: list[str], wanted: MemberName, *, has: bool
) -> None:
    names = Names.of(uris)
    assert names is not None
    assert names.domain == "mq"
    assert names.has(wanted) is has


@pytest.mark.parametrize("uris", [[], ["https://other.example/broker/prod/orders"], ["gantry:mq"]])
def test_other_uris_name_no_member(uris: Sequence[str]) -> None:
    assert Names.of(uris) is None


@pytest.mark.parametrize(
    "uri",
    [
        "gantry://mq",
        "gantry://mq/",
        "gantry:///controller",
        "gantry://mq/king",
        "gantry://mq/controller/prod",
        "gantry://mq/broker/prod",
        "gantry://mq/broker/prod/",
        "gantry://mq/broker/prod/orders/more",
        "gantry://mq/broker/*/orders",
        "gantry://mq/broker/prod/a*b",
        "gantry://mq/broker/prod/**",
        "gantry://mq/front",
    ],
)
def test_malformed_name_spoils_its_certificate(uri: str) -> None:
    with pytest.raises(ValueError, match="is none of"):
        Names.of(["gantry://mq/controller", uri])


def test_names_of_two_domains_are_refused() -> None:
    with pytest.raises(ValueError, match="several domains: a, b"):
        Names.of(["gantry://a/controller", "gantry://b/controller"])


def test_name_is_written_as_it_is_read() -> None:
    for member in (
        MemberName(MemberKind.CONTROLLER),
        BROKER,
        MemberName(MemberKind.BROKER, "a b", "c/d*"),
    ):
        names = Names.of([member.in_domain("mq")])
        assert names == Names("mq", (member,))


def test_uris_are_read_from_a_certificate(tmp_path: Path) -> None:
    authority = MemberAuthority(tmp_path)
    uris = [f"gantry://mq/broker/prod/{number}" for number in range(300)]
    der = first_certificate(authority.issue("broker", *uris).cert.read_text())
    assert uris_of(der) == uris
    own = first_certificate(authority.file.read_text())
    assert uris_of(own) == []


def test_broken_certificate_does_not_read(tmp_path: Path) -> None:
    der = first_certificate(MemberAuthority(tmp_path).issue("a", "gantry://mq/x").cert.read_text())
    for size in range(0, len(der), 7):
        with pytest.raises(ValueError, match="does not read"):
            uris_of(der[:size])
