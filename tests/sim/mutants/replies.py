"""Bugs in requests and replies: who gets a reply, and what its sender is told."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

CLIENTS = "gantry_broker.clients"
TESTS = "unit/broker/clients/test_replies.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    edit = Edit(f"{CLIENTS}.{place}", text, other)
    return Mutant(name, "replies", what, (edit,), UnitTests(f"{TESTS}::{killer}"))


MUTANTS = (
    _mutant(
        "reply-answered-unheard",
        "a reply is acknowledged though its client refused it",
        "replies:Replies.push",
        "if code == ResponseCode.SUCCESS:",
        "if True:",
        "test_a_reply_whose_client_leaves_or_refuses_it_is_refused",
    ),
    _mutant(
        "request-without-its-group",
        "a reply goes to any group of the cluster, and finds nobody there",
        "replies:request_properties",
        "{CLUSTER: broker_name}",
        "{}",
        "test_a_request_says_to_which_group_its_reply_goes",
    ),
    _mutant(
        "request-not-remembered",
        "for half a minute after a failover replies find nobody",
        "replies:Replies.expected",
        "if len(client_id) <= CLIENT_CHARS_MAX:",
        "if False:",
        "test_whoever_has_asked_is_known_before_its_heartbeat",
    ),
    _mutant(
        "reply-to-another-user",
        "whoever says the id of another client is told its replies",
        "sessions:Sessions.heard",
        "known is conn or (known is not None and _user(known) not in (None, _user(conn)))",
        "known is conn",
        "test_an_id_stays_with_its_user",
    ),
    _mutant(
        "replies-without-end",
        "a client that does not read holds thousands of replies in memory",
        "questions:Questions.is_full",
        "is_full = len(self._under_way) + more > self._limit",
        "is_full = False",
        "test_replies_under_way_are_bounded",
    ),
    _mutant(
        "question-for-ever",
        "the sender of a reply to a client that hangs is never answered",
        "questions:Questions.ask",
        "self._deadlines.add(number, self._within_s)",
        "pass",
        "test_a_client_that_says_nothing_is_given_up",
    ),
)
