"""Bugs in the proxy, which serves clients that speak gRPC (``gantry_proxy``)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

PROXY = "gantry_proxy"
TESTS = "unit/proxy"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    killed_by = UnitTests(f"{TESTS}/{killer}")
    return Mutant(name, "proxy", what, (Edit(place, text, other),), killed_by)


MUTANTS = (
    _mutant(
        "sent-again-although-stored",
        "a send that may be stored is sent again by the proxy, and stored twice",
        f"{PROXY}.calls:Masters.call",
        "stored = MAY_BE_STORED in (answer.ext or {})",
        "stored = False",
        "test_calls.py::test_what_may_be_stored_is_told_and_not_sent_again",
    ),
    _mutant(
        "lost-answers-are-refusals",
        "a send whose answer was lost is sent again by the proxy, and stored twice",
        f"{PROXY}.calls:Masters.call",
        "if not repeatable:",
        "if False:",
        "test_calls.py::test_a_lost_answer_is_the_client_s_to_judge",
    ),
    _mutant(
        "refusals-are-passed-on",
        "clients hear of each change of a master, and fail after three tries",
        f"{PROXY}.calls:Masters.call",
        "answer.code != ResponseCode.SERVICE_NOT_AVAILABLE or stored",
        "True",
        "test_calls.py::test_what_was_surely_not_carried_out_is_sent_again",
    ),
    _mutant(
        "routes-for-ever",
        "queues that moved, or were added, are not found until the proxy ends",
        f"{PROXY}.calls:Masters.route",
        "now_s - known[0] < ROUTE_AGE_S",
        "True",
        "test_calls.py::test_a_route_is_asked_for_again_when_it_is_old",
    ),
    _mutant(
        "no-route-without-name-servers",
        "clients stand still while the name servers do",
        f"{PROXY}.calls:Masters.route",
        "if known is None:",
        "if True:",
        "test_calls.py::test_a_route_holds_while_no_name_server_answers",
    ),
    _mutant(
        "deleted-topics-have-routes",
        "a topic that was deleted is served as long as the name servers deny it",
        f"{PROXY}.calls:Masters.route",
        "self._routes.pop(topic, None)",
        "return known[1]",
        "test_calls.py::test_a_topic_that_is_gone_has_no_route",
    ),
    _mutant(
        "renewed-with-another-handle",
        "a message that is renewed cannot be acknowledged any more",
        f"{PROXY}.renewing:Renewals._renew",
        "renew=True,",
        "renew=False,",
        "test_renewing.py::test_a_message_is_renewed_before_its_time_and_its_handle_stays",
    ),
    _mutant(
        "renewed-too-late",
        "a message comes again while its client works on it",
        f"{PROXY}.renewing:Renewals.hold",
        "now_s + RENEW_AFTER_S",
        "now_s + 3 * RENEW_AFTER_S",
        "test_renewing.py::test_a_message_is_renewed_before_its_time_and_its_handle_stays",
    ),
    _mutant(
        "renewed-for-the-dead",
        "what a killed client worked on comes again after three hours",
        f"{PROXY}.renewing:Renewals._renew",
        "or not self._is_there(renewal.client)",
        "",
        "test_renewing.py::test_a_client_that_is_gone_has_nothing_renewed",
    ),
    _mutant(
        "renewed-for-ever",
        "a message that its client never ends is nobody else's",
        f"{PROXY}.renewing:Renewals._renew",
        "now_s >= item.end_s or ",
        "",
        "test_renewing.py::test_nothing_is_renewed_for_ever",
    ),
    _mutant(
        "renewals-without-bound",
        "a client that never acknowledges fills the proxy's memory",
        f"{PROXY}.renewing:Renewals.hold",
        "if len(self._held) >= HELD_MAX:",
        "if False:",
        "test_renewing.py::test_what_is_held_has_a_bound",
    ),
    _mutant(
        "forged-properties",
        "a client sets what only brokers and proxies may say of a message",
        f"{PROXY}.core.outgoing:_user_properties",
        "if name in SYSTEM:",
        "if False:",
        "test_outgoing.py::test_properties_of_the_system_are_nobody_elses",
    ),
    _mutant(
        "separators-in-properties",
        "a property's value goes on as another property",
        f"{PROXY}.core.outgoing:_user_properties",
        "if _has_control(name + value):",
        "if _has_control(name):",
        "test_outgoing.py::test_properties_hold_no_separators",
    ),
    _mutant(
        "message-groups-in-any-queue",
        "messages of one group are in several queues, and in no order",
        f"{PROXY}.core.routes:of_message_group",
        "/{message_group}",
        "/{id(queues)}",
        "test_routes.py::test_a_queue_that_is_added_moves_its_share_of_message_groups_only",
    ),
    _mutant(
        "tries-start-anew",
        "a consumer in order cannot tell the first delivery from the tenth",
        f"{PROXY}.core.popped:popped",
        "None if times is None else times + 1",
        "None",
        "test_incoming.py::test_tries_of_what_is_consumed_in_order_are_counted",
    ),
    Mutant(
        "renewals-are-deliveries",
        "proxy",
        "a renewed message cannot be acknowledged with the receipt that its client has",
        (
            Edit(
                "gantry_broker.clients.pop.requests:PopRequests._change",
                "if header.renew:",
                "if False:",
            ),
        ),
        UnitTests(
            "unit/broker/clients/test_pop.py"
            "::test_a_renewed_message_stays_hidden_and_its_receipt_good"
        ),
    ),
    _mutant(
        "renewed-for-denied-users",
        "what a user may no longer have is asked for every three seconds, for hours",
        f"{PROXY}.renewing:Renewals._renew",
        "elif answer.code in _OVER:",
        "elif answer.code == ResponseCode.NO_MESSAGE:",
        "test_renewing.py",
    ),
    _mutant(
        "moved-queues-end-a-pull",
        "a client that pulls is told nothing of where a queue goes on, and stands still",
        f"{PROXY}.pulling:_pulled",
        "answer.code not in _GOES_ON",
        "answer.code != ResponseCode.PULL_NOT_FOUND",
        "test_pulling.py::test_without_a_message_it_is_told_where_the_queue_goes_on",
    ),
    _mutant(
        "pulls-outlive-their-clients",
        "a pull waits longer than its client, which gets nothing",
        f"{PROXY}.core.polling:poll_ms",
        "longest_ms = min(longest_ms, int(left_s * 1000) - POLL_MARGIN_MS)",
        "pass",
        "test_pulling.py::test_it_waits_no_longer_than_its_client",
    ),
    _mutant(
        "requests-stay-with-a-dead-master",
        "where groups have no door, writes stop for seconds after a master's death",
        f"{PROXY}.calls:Masters.call",
        "address = await self._next_address(address)",
        "pass",
        "test_calls.py::test_a_request_follows_the_group_to_its_next_master",
    ),
    _mutant(
        "every-failed-request-asks-for-the-route",
        "all calls of all clients ask name servers at once while a group has no master",
        f"{PROXY}.calls:Masters._next_address",
        "_remember(self._routes, topic, (loop.time(), groups))",
        "pass",
        "test_calls.py::test_of_many_requests_that_fail_one_asks_for_the_route",
    ),
    _mutant(
        "a-route-without-the-group-counts",
        "a group that has no master for a moment has no queues for clients",
        f"{PROXY}.calls:Masters._next_address",
        "if any(group.broker_name == name for group in newer):",
        "if True:",
        "test_calls.py::test_a_request_follows_the_group_to_its_next_master",
    ),
    _mutant(
        "streams-pass-the-gate",
        "who may not receives and pulls messages all the same",
        f"{PROXY}.service:_streaming",
        "gate.admit(name, wanted, call)",
        "pass",
        "test_gate.py::test_no_method_is_served_for_who_may_not",
    ),
    _mutant(
        "anybody-changes-the-log",
        "while access is off anybody has a proxy say nothing of what he does",
        f"{PROXY}.admin:AdminService.change_log_level",
        "if user is None:",
        "if False:",
        "test_admin.py::test_where_nobody_is_judged_nobody_may",
    ),
)
