"""Bugs in lite topics (ADR 0088)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

INDEX = "gantry_broker.queues.lite_index:LiteIndex"
REGISTRY = "gantry_broker.clients.core.lite.registry:LiteRegistry"
BOOK = "gantry_broker.clients.lite.book:LiteBook"
POPPING = "gantry_broker.clients.lite.popping:LitePopping"
SUBSCRIBING = "gantry_broker.clients.lite.subscribing:Subscribing"
ROWS = "unit/broker/queues/test_lite_index.py"
LITES = "unit/broker/clients/test_lite_topics.py"
HANDLES = "unit/proxy/test_handles.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    edit = Edit(place, text, other)
    return Mutant(name, "lite topics", what, (edit,), UnitTests(killer))


MUTANTS = (
    _mutant(
        "lite-scans-together",
        "after a change of master writes stop while many clients' lite topics are looked through",
        "gantry_broker.clients.lite.pace:Pace.slice",
        "if self._holder is None and not self._is_given:",
        "if self._holder is None:",
        f"{LITES}::test_many_clients_that_look_through_all_they_take_leave_others_their_turns",
    ),
    _mutant(
        "lite-left-while-waiting",
        "a client is given messages of a lite topic that it left while it waited to look",
        f"{POPPING}._take",
        "if not item.all and name not in item.names:",
        "if False:",
        f"{LITES}::test_what_is_left_by_who_waits_to_look_at_it_is_not_given",
    ),
    _mutant(
        "lite-scans-in-turn",
        "all clients find their first message late after a change of master",
        "gantry_broker.clients.lite.pace:Pace.slice",
        "if self._holder is asking and self._left > 0:",
        "if False:",
        f"{LITES}::test_one_client_at_a_time_looks_through_what_it_takes",
    ),
    _mutant(
        "lite-scans-unpaced",
        "each client that looks through its lite topics takes a slice of every turn",
        f"{POPPING}._take",
        "yield from self._pace.slice(answer)",
        "yield 0.0",
        f"{LITES}::test_many_clients_that_look_through_all_they_take_leave_others_their_turns",
    ),
    _mutant(
        "lite-last-message-overlooked",
        "the newest message of a lite topic waits for the next one",
        f"{POPPING}._may_find",
        "return held.next < end",
        "return False",
        f"{LITES}::test_a_lite_topic_gives_its_next_batch_when_the_last_one_is_done",
    ),
    _mutant(
        "lite-ends-with-newer-messages",
        "a message that comes while its lite topic ends is lost",
        f"{INDEX}.end",
        "if head is not None and head.last == last:",
        "if head is not None:",
        f"{ROWS}::test_an_end_that_does_not_know_the_newest_message_ends_nothing",
    ),
    _mutant(
        "lite-rows-outlive-the-end",
        "messages of a lite topic that ended stay for ever, and come back with it",
        f"{INDEX}._drop",
        "self._dropped += [key for key, _ in self._kv.pairs(*bounds)]",
        "bounds",
        f"{ROWS}::test_an_end_takes_a_lite_topic_with_all_its_rows",
    ),
    _mutant(
        "lite-pages-lack-what-waits",
        "after a start who takes all lite topics is given nothing of what was there",
        f"{INDEX}.page",
        "if is_behind and name.startswith(prefix):",
        "if False:",
        f"{ROWS}::test_what_waits_for_the_next_batch_is_among_them",
    ),
    _mutant(
        "lite-pages-end-at-what-ended",
        "a page of lite topics that have just ended hides all behind it",
        f"{INDEX}.page",
        "if page or last is None:",
        "if True:",
        f"{ROWS}::test_what_waits_for_the_next_batch_is_among_them",
    ),
    _mutant(
        "lite-page-passes-over-rows",
        "lite topics that come again while all are gone through hide others",
        f"{INDEX}.page",
        "(last is None or name <= last)",
        "True",
        f"{ROWS}::test_what_waits_for_the_next_batch_is_among_them",
    ),
    _mutant(
        "lite-left-is-looked-through",
        "a client is given messages of a lite topic that it has left",
        f"{POPPING}._scan",
        "if name in item.names:",
        "if True:",
        f"{LITES}::test_what_was_left_before_it_was_looked_at_is_not_given",
    ),
    _mutant(
        "lite-copies-of-dead-letters",
        "what failed too often comes once more to who takes the lite topic of that name",
        "gantry_protocol.records.lite_topics:lite_of",
        "if topic.startswith(_INTERNAL):",
        "if False:",
        f"{ROWS}::test_copies_elsewhere_are_in_no_lite_topic",
    ),
    _mutant(
        "lite-runs-not-looked-at",
        "lite messages that a master has just appended are in no lite topic there",
        "gantry_broker.queues.dispatcher:Dispatcher._take_all",
        "if is_system or MARK in properties:",
        "if is_system:",
        f"{ROWS}::test_a_lite_topic_has_its_messages_of_all_queues_in_the_order_of_the_log",
    ),
    _mutant(
        "lite-topics-outlive-their-parent",
        "a topic that is made anew has the lite topics of the one before",
        "gantry_broker.queues.queue_table:QueueTable.hide_topic",
        "self.lite.hide_parent(topic)",
        "pass",
        f"{ROWS}::test_a_topic_that_goes_takes_its_lite_topics_with_it",
    ),
    _mutant(
        "lite-log-let-go-too-early",
        "the log is let go behind a subscription that nothing else says",
        f"{REGISTRY}.first_needed",
        "return None if oldest is None else oldest.at",
        "return None",
        f"{LITES}::test_the_log_is_needed_from_the_oldest_whole_record_on",
    ),
    _mutant(
        "lite-subscriptions-never-renewed",
        "a new master reads all that clients ever said",
        f"{BOOK}._renew_sometimes",
        "if behind < max(BEHIND_BYTES, 2 * live) and not is_old:",
        "if not is_old:",
        f"{LITES}::test_the_log_is_needed_from_the_oldest_whole_record_on",
    ),
    _mutant(
        "lite-late-is-lost",
        "a subscription that is confirmed late is in the log, and its master does not know it",
        f"{BOOK}.record",
        "if not outcome.stored:",
        "if outcome.code != ResponseCode.SUCCESS:",
        f"{LITES}::test_a_subscription_is_there_though_it_is_not_confirmed_in_time",
    ),
    _mutant(
        "lite-two-clients-have-it",
        "in an exclusive group two clients have one lite topic",
        f"{REGISTRY}.apply",
        "if isinstance(event, Added) and event.alone else []",
        "if False else []",
        f"{LITES}::test_in_an_exclusive_group_the_last_that_subscribes_has_it",
    ),
    _mutant(
        "lite-taken-back-by-habit",
        "the half-minute word of a client takes back what it has lost",
        f"{SUBSCRIBING}._without_lost",
        "if name in held or not others:",
        "if True:",
        f"{LITES}::test_who_has_lost_a_lite_topic_does_not_take_it_back_by_its_usual_word",
    ),
    _mutant(
        "lite-started-empty",
        "after a change of master only what comes anew is handed out",
        f"{POPPING}._scanned",
        "item.scan = self._scan(item)",
        "item.scan = iter(())",
        f"{LITES}::test_a_pop_takes_a_few_of_many_lite_topics_and_the_next_goes_on",
    ),
    _mutant(
        "lite-not-looked-at-again",
        "what a client did not acknowledge does not come again while it waits",
        f"{POPPING}._visible",
        "self._offer(item, name)",
        "pass",
        f"{LITES}::test_what_is_not_done_comes_again_to_one_that_waits",
    ),
    _mutant(
        "lite-batch-without-end",
        "the next batch of a lite topic waits until the time of the one before is over",
        f"{POPPING}.changed",
        "self._offer(item, name)",
        "pass",
        f"{LITES}::test_a_lite_topic_gives_its_next_batch_when_the_last_one_is_done",
    ),
    _mutant(
        "lite-clients-stay-for-ever",
        "the subscriptions of clients that died are kept for ever",
        f"{SUBSCRIBING}._look",
        "self.heard_s(key) > SILENT_S",
        "False",
        f"{LITES}::test_a_silent_client_is_given_up_and_one_that_pops_is_not",
    ),
    _mutant(
        "lite-done-is-unknown",
        "an acknowledgement that repeats is refused for a lite topic without messages in flight",
        "gantry_broker.clients.pop.book:PopBook.state",
        "if done is not None and offset < done:",
        "if False:",
        f"{LITES}::test_lite_topics_of_which_nothing_is_in_flight_are_in_no_table",
    ),
    _mutant(
        "lite-handles-name-no-topic",
        "what a lite consumer puts off is refused, and comes a minute late",
        "gantry_proxy.core.handles:changed",
        'fields = handle.whole.split(" ")',
        'fields = handle.text.split(" ")',
        f"{HANDLES}::test_a_handle_of_a_lite_topic_names_it_also_when_it_is_put_off",
    ),
)
