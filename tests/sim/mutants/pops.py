"""Bugs in consumption by POP (ADR 0078)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

LEDGER = "gantry_broker.clients.core.pop.ledger"
BOOK = "gantry_broker.clients.pop.book:PopBook"
TAKING = "gantry_broker.clients.pop.taking:Taking"
REQUESTS = "gantry_broker.clients.pop.requests:PopRequests"
POLLS = "gantry_broker.clients.pop.polls:Polls"
POPS = "unit/broker/clients/test_pop.py"
MASTERS = "unit/broker/clients/test_pop_masters.py"
WAITING = "unit/broker/clients/test_pop_waiting.py"
FAILURES = "unit/broker/clients/test_pop_failures.py"
CORE = "unit/broker/clients/core/test_pop.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    edit = Edit(place, text, other)
    return Mutant(name, "POP", what, (edit,), UnitTests(killer), quick=True)


MUTANTS = (
    _mutant(
        "popped-again-at-once",
        "a message that somebody works on is handed out to somebody else",
        f"{LEDGER}:PopQueue.visible",
        "self._due[0][0] <= steady_ms and",
        "",
        f"{POPS}::test_what_is_popped_is_invisible_until_its_time_is_over",
    ),
    _mutant(
        "young-queues-skipped",
        "a new group that comes a moment after the first message never gets it",
        f"{TAKING}._current",
        "wanted.from_end and not is_young(place)",
        "wanted.from_end",
        f"{POPS}::test_a_new_group_skips_nothing_of_a_young_queue",
    ),
    _mutant(
        "all-queues-young",
        "a new group that wants new messages gets all old ones",
        f"{TAKING}._current",
        "wanted.from_end and not is_young(place)",
        "False",
        f"{POPS}::test_a_new_group_begins_where_it_says",
    ),
    _mutant(
        "receipts-never-over",
        "a late acknowledgement takes away a message that somebody else works on",
        f"{LEDGER}:PopLedger.state",
        "item.message.popped_ms == popped_ms",
        "True",
        f"{POPS}::test_a_receipt_is_over_when_its_message_was_handed_out_again",
    ),
    _mutant(
        "in-flight-for-ever-after-a-clock-that-is-ahead",
        "the wall clock of a new master is believed beyond the invisible time",
        "gantry_broker.clients.core.clocks:Clocks.over_at",
        "max(self.wall_ms - since_ms, 0)",
        "self.wall_ms - since_ms",
        CORE,
    ),
    _mutant(
        "pops-taken-back-oldest-first",
        "after a refused append a message is neither in flight nor to be popped",
        f"{BOOK}._take_back",
        "for wish in reversed(wishes):",
        "for wish in wishes:",
        f"{MASTERS}::test_an_append_that_fails_takes_back_everything_that_was_built_on_it",
    ),
    _mutant(
        "pops-not-taken-back",
        "a message whose pop was not stored stays in flight, though nobody has it",
        f"{BOOK}._take_back",
        "self.ledger.undo(undo)",
        "pass",
        f"{MASTERS}::test_an_append_that_fails_takes_back_everything_that_was_built_on_it",
    ),
    _mutant(
        "pops-without-their-offset",
        "the offset of a group that pops does not move: lag for ever, and all again for pulls",
        f"{BOOK}._moved_rows",
        "self.committed[queue_id] != queue.floor",
        "False",
        f"{POPS}::test_the_offset_of_the_group_is_that_of_the_first_message_in_flight",
    ),
    _mutant(
        "done-before-it-is-confirmed",
        "a repeated acknowledgement is answered 0 while the first one may be lost",
        f"{BOOK}.settled",
        "if self._writing or self._waiting:",
        "if False:",
        f"{MASTERS}::test_nothing_is_answered_before_it_is_confirmed",
    ),
    _mutant(
        "events-before-dead-letters",
        "a cut of the log loses a message on its way to the dead letters",
        f"{BOOK}._write",
        "records = [record for wish in wishes for record in wish.buried]",
        "records = [events_record(events, host)] if events else []",
        f"{MASTERS}::test_dead_letters_stand_before_offsets_and_those_before_events",
    ),
    _mutant(
        "table-says-nothing-of-its-place",
        "the log is kept from the first pop on, for ever",
        f"{BOOK}._written",
        "self._view.store.committed.commit(GROUP, POP_TOPIC, 0, first)",
        "pass",
        f"{MASTERS}::test_a_table_stands_for_the_records_before_it",
    ),
    _mutant(
        "pops-without-a-pin",
        "the log is trimmed over what a new master needs to know what is in flight",
        "gantry_broker.member.pins:pop_pin",
        "_needed(store, POP_GROUP, POP_TOPIC)",
        "None",
        "unit/broker/member/test_transaction_pins.py::test_the_log_is_kept_from_the_newest_table_of_pops_on",
    ),
    _mutant(
        "pops-pin-nothing",
        "a member trims its log although it knows that it may have to go on with what is in flight",
        "gantry_broker.member.tier:GroupTier.pins",
        "popped=pop_pin(self.store),",
        "",
        "unit/broker/member/test_member.py::test_the_log_stays_for_what_the_next_master_reads",
    ),
    _mutant(
        "order-of-a-queue-not-kept",
        "a queue in order hands out a second batch while the first is worked on",
        f"{TAKING}._read",
        "is_blocked = wanted.ordered and bool(queue.held)",
        "is_blocked = False",
        f"{POPS}::test_a_queue_in_order_waits_for_its_batch",
    ),
    _mutant(
        "handed-out-while-it-is-acknowledged",
        "what is acknowledged while a pop reads it is handed out",
        f"{TAKING}._hand_out",
        "if offset in changed:",
        "if False:",
        f"{MASTERS}::test_what_is_acknowledged_while_it_is_read_is_not_handed_out",
    ),
    _mutant(
        "tried-for-ever",
        "a message that always fails is handed out for ever",
        f"{TAKING}._take_dead",
        "not 0 <= wanted.tries < held.message.count",
        "True",
        f"{POPS}::test_a_message_that_was_tried_often_enough_goes_to_the_dead_letters",
    ),
    _mutant(
        "resets-not-followed-by-pops",
        "a reset of a group that pops does nothing",
        f"{TAKING}._current",
        "and offset == self._book.committed[queue_id]",
        "",
        f"{POPS}::test_a_reset_is_followed",
    ),
    _mutant(
        "refused-reset-forgotten",
        "a reset is never followed if the first append that says so is refused",
        f"{BOOK}._take_back",
        "if isinstance(undo.event, OffsetMoved):",
        "if False:",
        f"{MASTERS}::test_a_reset_that_could_not_be_recorded_is_followed_later",
    ),
    _mutant(
        "served-without-the-table",
        "what is in flight is handed out to others by a master that does not know of it",
        f"{BOOK}._read_log",
        "if reader.table_at is None and start > 0:",
        "if False:",
        f"{MASTERS}::test_nothing_is_handed_out_by_a_master_that_lacks_the_table",
    ),
    _mutant(
        "next-pop-left-asleep",
        "what one client leaves of two messages that came together waits for a third",
        f"{POLLS}._serve",
        "if has_found or line.has_news:",
        "if line.has_news:",
        f"{POPS}::test_what_one_leaves_wakes_the_next",
    ),
    _mutant(
        "foreign-receipts-count",
        "a receipt of another broker group acknowledges a message of this one",
        f"{REQUESTS}._held",
        "if named != (self._view.broker_name, header.queue_id, header.offset):",
        "if False:",
        f"{POPS}::test_receipts_that_are_none_change_nothing",
    ),
    _mutant(
        "taken-and-not-handed-out",
        "what a pop took stays hidden, since another queue cannot be read",
        f"{TAKING}.take",
        "failure is not None and not found",
        "failure is not None",
        f"{FAILURES}::test_a_queue_that_cannot_be_read_keeps_nothing_of_others",
    ),
    _mutant(
        "unreadable-queues-seem-empty",
        "a pop is told that there is nothing where nothing could be read",
        f"{TAKING}.take",
        "raise failure",
        "pass",
        f"{FAILURES}::test_a_queue_that_cannot_be_read_keeps_nothing_of_others",
    ),
    _mutant(
        "dead-letters-too-large",
        "one message with many properties has all appends refused, and is never done",
        "gantry_broker.clients.pop.taking:_dead_letter",
        "encode(copy)",
        "pass",
        f"{FAILURES}::test_a_dead_letter_without_room_for_properties_keeps_its_own",
    ),
    _mutant(
        "large-dead-letters-dropped",
        "a message with many properties is not among the dead letters",
        "gantry_broker.clients.pop.taking:_dead_letter",
        "lambda: plain,",
        "",
        f"{FAILURES}::test_a_dead_letter_without_room_for_properties_keeps_its_own",
    ),
    _mutant(
        "no-rest-for-who-waits",
        "a master does nothing but look for a message that it cannot hand out",
        f"{POLLS}._arm",
        "due_s = now_s + line.rest_s",
        "pass",
        f"{WAITING}::test_who_waits_for_a_blocked_queue_looks_now_and_then",
    ),
    _mutant(
        "given-back-and-not-looked-at",
        "a message that a consumer gives back waits for the rest of others",
        f"{POLLS}.rearm",
        "self.wake(place)",
        "pass",
        f"{WAITING}::test_a_message_that_is_given_back_wakes_who_waits",
    ),
    _mutant(
        "one-line-for-all-queues",
        "who waits for one queue keeps a message of another one from who waits for that",
        "gantry_broker.clients.pop.requests:_place",
        "max(header.queue_id, ANY_QUEUE)",
        "ANY_QUEUE",
        f"{WAITING}::test_who_waits_for_one_queue_is_not_behind_who_waits_for_another",
    ),
    _mutant(
        "acknowledged-and-nobody-woken",
        "the next message of a queue in order waits for an arrival",
        f"{POLLS}.wake_queue",
        "self.wake(Place(topic, group, queue_id))",
        "pass",
        f"{WAITING}::test_an_acknowledgement_wakes_who_waits_for_its_queue",
    ),
    _mutant(
        "free-and-nobody-woken",
        "who found a queue taken by another pop does not get what that one left",
        f"{TAKING}.take",
        "self._unlocked(other)",
        "pass",
        f"{WAITING}::test_who_finds_a_queue_taken_is_woken_when_it_is_free",
    ),
    _mutant(
        "arrived-behind-the-look",
        "a message that arrives while a pop is looking for one waits for the next one",
        f"{REQUESTS}._begin",
        "is_late = True",
        "",
        f"{WAITING}::test_what_arrives_while_a_pop_looks_is_found",
    ),
    _mutant(
        "popped-without-an-offset",
        "a group without room for its offset gets the same messages with each pop",
        f"{TAKING}._commit",
        "not self._book.commit(queue_id, offset)",
        "self._book.commit(queue_id, offset) is None",
        f"{FAILURES}::test_a_group_without_room_for_its_offset_is_refused",
    ),
    _mutant(
        "any-number-of-new-groups-pops",
        "pops in the name of made-up groups fill the table of offsets",
        f"{REQUESTS}._refuse_new_group",
        "return self._refuse_new(conn, place.group, place.topic, 0)",
        "return None",
        f"{FAILURES}::test_pops_of_new_groups_are_bounded_and_those_of_known_ones_are_not",
    ),
    _mutant(
        "pops-are-no-use",
        "a group whose clients send no heartbeats loses its offsets while it pops",
        "gantry_broker.clients.offset_age:OffsetAge._judge",
        "group in self._popped or",
        "",
        f"{FAILURES}::test_offsets_of_a_group_that_only_pops_stay",
    ),
    _mutant(
        "refused-topics-asked-for-at-once",
        "controllers are asked for a topic for dead letters by every pop, while they refuse it",
        f"{TAKING}._wait_for_topic",
        "self._loop.call_later(REST_S, look_again)",
        "look_again()",
        f"{FAILURES}::test_a_refused_topic_is_asked_for_now_and_then",
    ),
    _mutant(
        "dead-letters-one-look-a-second",
        "after a large batch of dead letters nobody looks for the next ones",
        f"{TAKING}._bury",
        "self._look_again(queue_id)",
        "pass",
        f"{FAILURES}::test_dead_letters_wait_in_the_log_for_their_topic",
    ),
)
