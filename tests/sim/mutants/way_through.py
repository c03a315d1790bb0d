"""Bugs on the way through a replica or a door: what the next master is given, and stores again."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

TABLE = "unit/protocol/test_unanswered.py"
RESENT = "unit/broker/clients/test_resent.py"
ROUTING = "unit/broker/clients/test_routing.py"
COURSE = "unit/broker/control/test_course.py"
PEERS = "unit/broker/control/test_peers.py"


def _mutant(name: str, breaks: str, where: str, old: str, new: str, killer: str) -> Mutant:
    return Mutant(name, "shell", breaks, (Edit(where, old, new),), UnitTests(killer))


MUTANTS = (
    _mutant(
        "given-twice",
        "what waited for a master is given to two of them, or twice to one",
        "gantry_protocol.remoting.unanswered:Unanswered.hand_over",
        "waiting, self._waiting = self._waiting, []",
        "waiting = self._waiting",
        f"{TABLE}::test_oneway_requests_and_answers_of_the_client_go_to_one_master",
    ),
    _mutant(
        "given-again-without-the-mark",
        "a send that an earlier master has stored is stored again",
        "gantry_protocol.remoting.unanswered:Unanswered.hand_over",
        "marked.append(opaque)",
        "pass",
        f"{TABLE}::test_the_next_master_is_given_what_is_unanswered_once_and_in_order",
    ),
    _mutant(
        "everything-is-given-again",
        "what must not be carried out twice is",
        "gantry_protocol.remoting.unanswered:Unanswered.hand_over",
        "glimpse.code in REPEATABLE",
        "True",
        f"{TABLE}::test_what_must_not_be_done_twice_is_refused_unless_nobody_was_given_it",
    ),
    _mutant(
        "given-to-a-former-master",
        "a client goes on talking to a master that is none any more",
        "gantry_protocol.remoting.splice:Splice._take",
        " or self._moving",
        "",
        f"{ROUTING}::test_a_client_moves_between_requests_where_possible",
    ),
    _mutant(
        "resent-vouched-for-by-one",
        "a repeated send is answered 0 while its record is on the master's disk alone",
        "gantry_broker.clients.resent:ResentSends._looked",
        "self._view.accepting_writes() or stored",
        "stored",
        f"{RESENT}::test_a_set_that_shrinks_meanwhile_does_not_vouch_for_what_is_there",
    ),
    _mutant(
        "resent-without-a-window",
        "a message is taken for one of any age",
        "gantry_broker.clients.resent:_Lookup.__init__",
        "now_ms - WINDOW_MS",
        "0",
        f"{RESENT}::test_a_record_beyond_the_window_is_another_one",
    ),
    _mutant(
        "resent-by-key-alone",
        "a message that its client sends twice on purpose is stored once",
        "gantry_broker.clients.sent_records:_is_one",
        "found.born_timestamp == sought.born_timestamp and is_same_queue",
        "is_same_queue",
        f"{RESENT}::test_what_is_not_there_is_stored",
    ),
    _mutant(
        "torn-batch-stored-whole",
        "the first messages of a batch that a failover cut in two are stored twice",
        "gantry_broker.clients.resent:ResentSends._looked",
        "elif stored:",
        "elif False:",
        f"{RESENT}::test_of_a_batch_whose_end_was_cut_off_the_rest_is_stored",
    ),
    _mutant(
        "resent-before-the-tail-is-confirmed",
        "a send is stored again, since the first one is not confirmed yet",
        "gantry_broker.clients.resent:_Lookup._learned",
        "max(held.max_offset, self._view.queues.first_offset(*queue)) >= end",
        "True",
        f"{RESENT}::test_what_the_last_master_left_unconfirmed_is_waited_for_in_order",
    ),
    _mutant(
        "epoch-asked-for-once",
        "a master serves in a later epoch what waits on a connection that it has served before",
        "gantry_broker.clients.routing:ClientRouter._is_former",
        "conn.attrs.get(EPOCH, 0)",
        "conn.attrs.pop(EPOCH, 0)",
        f"{ROUTING}::test_what_waits_where_it_was_served_in_an_earlier_epoch_is_not_served_again",
    ),
    _mutant(
        "door-follows-a-former-master",
        "clients are led back to a master that is none any more",
        "gantry_broker.control.core.course:Course.heard",
        "epoch < self.epoch",
        "False",
        f"{COURSE}::test_only_an_answer_of_the_newest_epoch_counts",
    ),
    _mutant(
        "door-trusts-a-lost-master",
        "clients wait up to a second for a master that was elected long ago",
        "gantry_broker.control.core.course:Course.doubt",
        "self._doubt_ends_s = now_s + DOUBT_S",
        "pass",
        f"{COURSE}::test_a_lost_master_is_doubted_for_a_while",
    ),
    _mutant(
        "door-asks-a-silent-controller-on-and-on",
        "a controller that does not answer is given a question every 50 ms",
        "gantry_broker.control.peers:ControllerPeers.ask_each",
        " and not client.pending_calls",
        "",
        f"{PEERS}::test_a_controller_that_owes_an_answer_is_asked_nothing_more",
    ),
)
