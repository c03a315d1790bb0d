"""Bugs in POP of mapped topics (ADR 0090)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

PARTS = "gantry_broker.clients.pop.parts:Parts"
TESTS = "unit/broker/clients/mapped/test_popped_parts.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    edit = Edit(place, text, other)
    return Mutant(name, "POP", what, (edit,), UnitTests(f"{TESTS}::{killer}"))


MUTANTS = (
    _mutant(
        "popped-from-the-end-after-a-move",
        "who pops misses what comes to a queue between its move and the next pop",
        f"{PARTS}._begins",
        "if not part.before:",
        "if True:",
        "test_who_popped_before_the_move_misses_nothing",
    ),
    _mutant(
        "known-to-nobody-since-the-group-is-gone",
        "who pops misses messages once the group that knew of it is retired",
        f"{PARTS}._begins",
        "if any(self._is_gone(item) for item in part.before):",
        "if False:",
        "test_what_a_group_that_is_gone_knew_counts_as_known",
    ),
    _mutant(
        "old-messages-for-a-new-group",
        "a group that wants what is new gets all of the segments that are closed",
        f"{PARTS}._begins",
        "if not part.before:\n        return part.end is None",
        "if not part.before:\n        return True",
        "test_a_closed_segment_has_nothing_for_a_new_group",
    ),
    _mutant(
        "silence-says-nobody-knows",
        "a group that cannot be asked counts as one that knows nothing",
        f"{PARTS}._ask_known",
        "if offset == _NO_OFFSET:",
        "if offset is None or offset == _NO_OFFSET:",
        "test_who_does_not_answer_is_asked_again",
    ),
    _mutant(
        "earlier-segments-not-led-back",
        "what a group had not pulled before a move is skipped once it pops",
        f"{PARTS}._lead_back",
        "one.end > offset and",
        "False and",
        "test_an_offset_from_before_leads_earlier_segments_back",
    ),
    _mutant(
        "reset-of-the-newest-part-alone",
        "a group that pops is reset, and does not get what older segments have again",
        f"{PARTS}.reset",
        "for part in parts[:-1]:",
        "for part in parts[:0]:",
        "test_a_reset_leads_the_older_segments_of_the_group_back",
    ),
    _mutant(
        "led-back-again-after-a-reset",
        "what was acknowledged since a reset comes again",
        f"{PARTS}._tell",
        "if is_new else True",
        "",
        "test_what_was_acknowledged_since_a_reset_does_not_come_again",
    ),
    _mutant(
        "reset-skips-without-force",
        "a reset that is to lead nobody on skips what older segments have",
        f"{PARTS}.reset",
        "is_moved = is_force or at < now",
        "is_moved = True",
        "test_only_by_force_a_reset_leads_older_segments_on",
    ),
    _mutant(
        "lag-of-who-pulls-after-a-reset",
        "a group that pulls seems to lag behind where its queue was, for ever",
        f"{PARTS}.reset",
        "self._book.may_have(*queue)",
        "True",
        "test_a_reset_of_who_pulls_is_in_the_newest_segment_alone",
    ),
    _mutant(
        "done-behind-in-flight-in-older-parts",
        "a reset brings nothing back that was acknowledged in a segment with something in flight",
        f"{PARTS}.reset",
        "found.append(Back(queue, at, is_moved))",
        "pass",
        "test_a_reset_brings_back_what_is_done_behind_what_is_in_flight",
    ),
    _mutant(
        "order-ends-with-a-reset",
        "in order a message overtakes those before it that a reset brings again",
        f"{PARTS}.reset",
        "self._passed.pop(QueueId(group, topic, part.queue_id), None)",
        "pass",
        "test_in_order_all_begins_anew_after_a_reset",
    ),
    _mutant(
        "in-order-before-it-is-confirmed",
        "in order a message is handed out although one before it may come again",
        f"{PARTS}._confirmed",
        "self._book.settled(settled)",
        "heard(reached)",
        "test_what_is_done_is_told_once_it_is_confirmed",
    ),
    _mutant(
        "offset-of-what-is-done-grows-old",
        "a group that pops is forgotten where all is done, and gets it anew",
        f"{PARTS}._may_take",
        "self._used(queue.group)",
        "pass",
        "test_the_offset_of_a_segment_that_is_done_is_kept",
    ),
    _mutant(
        "drained-since-later-messages-are-done",
        "a group is drained and goes with messages that somebody has popped",
        "gantry_broker.clients.mapped.committed_later:CommittedLater.offset",
        "None if self.is_popped(*place) else self._known.get(place)",
        "self._known.get(place)",
        "test_what_was_popped_elsewhere_says_nothing_of_what_is_here",
    ),
    _mutant(
        "asleep-when-a-queue-comes",
        "who waits for a message is not told that a queue with some has come",
        "gantry_broker.clients.pop.requests:PopRequests.queues_changed",
        "self.polls.wake_topic(topic)",
        "pass",
        "test_who_waits_is_woken_once_a_queue_has_come",
    ),
    Mutant(
        "order-ends-with-a-move",
        "POP",
        "in order a message overtakes those that stand where its queue was",
        (
            Edit(
                f"{PARTS}._may_take",
                "if not ordered or queue in self._passed or not part.with_messages:",
                "if True:",
            ),
        ),
        Seeds("product-moved-pops", 3),
    ),
    Mutant(
        "done-behind-in-flight-stays-done",
        "POP",
        "a reset brings nothing back that was acknowledged behind what is in flight",
        (
            Edit(
                "gantry_broker.clients.core.pop.ledger:reset_events",
                "back.first if back.is_rest_done",
                "max(back.first, queue.next if back.first >= queue.floor else 0)"
                " if back.is_rest_done",
            ),
        ),
        UnitTests(
            "unit/broker/clients/test_pop_resets.py::test_everything_from_the_offset_on_comes_again"
        ),
    ),
    Mutant(
        "message-group-of-one-place",
        "POP",
        "a message group changes its queue when that moves, and is out of order",
        (Edit("gantry_proxy.producing:Producing._place", "if mapped is not None:", "if False:"),),
        UnitTests("unit/proxy/test_producing.py"),
    ),
)
