"""Whom to dial: what controllers say of their members, and whose word takes one away."""

from __future__ import annotations

import pytest
from gantry_broker.control.core.whereabouts import MEMBERS_MAX, Whereabouts

A, B, C, D = (f"q-{n}.q.mq.svc:9878" for n in range(4))


def said(*addresses: str) -> str:
    return "".join(f"n{number}:{address};" for number, address in enumerate(addresses, start=1))


def test_the_settings_count_until_somebody_has_spoken() -> None:
    assert Whereabouts((A, B)).dialled == (A, B)


@pytest.mark.parametrize("leads", [True, False])
def test_anybody_adds(leads: bool) -> None:
    assert Whereabouts((A,)).heard(said(A, B, C), leads=leads).dialled == (A, B, C)


def test_only_the_leader_takes_away() -> None:
    known = Whereabouts((A, B, C))
    assert known.heard(said(A), leads=False).dialled == (A, B, C)
    assert known.heard(said(A), leads=True).dialled == (A,)


def test_who_was_added_by_a_follower_that_is_behind_goes_with_the_leaders_next_word() -> None:
    known = Whereabouts((A,)).heard(said(A, D), leads=False)
    assert known.heard(said(A, B), leads=True).dialled == (A, B)


def test_all_may_be_replaced_one_after_the_other() -> None:
    known = Whereabouts((A,)).heard(said(A, B), leads=True).heard(said(B), leads=True)
    assert known.heard(said(B, C), leads=True).dialled == (B, C)


@pytest.mark.parametrize(
    "members",
    [
        said("10.0.0.1:9878", "10.0.0.2:9878"),  # the same ones, as another network calls them
        "n0-127.0.0.1:9877;n1-127.0.0.1:9887",  # of another make
        "127.0.0.1:9877;",
        f"n1:{A}x;",
        "",
        ";;;",
        "n1:;n2:h",
    ],
)
def test_a_list_without_a_known_address_changes_nothing(members: str) -> None:
    known = Whereabouts((A, B))
    assert known.heard(members, leads=True) == known


def test_a_list_is_bounded() -> None:
    many = said(A, *(f"h{n}:1" for n in range(100)))
    assert len(Whereabouts((A,)).heard(many, leads=True).dialled) == MEMBERS_MAX
    known = Whereabouts((A,)).heard(many, leads=False)
    other = said(A, *(f"g{n}:1" for n in range(100)))
    assert len(known.heard(other, leads=False).dialled) == MEMBERS_MAX


def test_while_nobody_answers_the_settings_count_again() -> None:
    known = Whereabouts((A, B)).heard(said(A, C), leads=True)
    assert known.lost().dialled == (A, B, C)
    assert known.lost().heard(said(C), leads=True).dialled == (C,)


@pytest.mark.parametrize(
    ("named", "services"),
    [
        ((A, B), ("q.mq.svc:9878",)),
        (("a-b-0.a-b.ns.svc:1", "c-0.c.ns.svc:2"), ("a-b.ns.svc:1", "c.ns.svc:2")),
        (("10.0.0.1:9878", "localhost:1", "[::1]:2"), ()),
        (("q-0.other.mq.svc:1", "q-x.q.mq.svc:1", "q-0.q:1"), ()),
    ],
)
def test_pods_are_found_behind_their_service(
    named: tuple[str, ...], services: tuple[str, ...]
) -> None:
    assert Whereabouts(named).services() == services
