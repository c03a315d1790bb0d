"""Bugs in what is known of sends that came before (``member.repeats``, ``queues.recent_keys``)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

STORE = "gantry_broker.queues.message_store:MessageStore"
REPEATS = "gantry_broker.member.repeats:Repeats"
WRITES = "gantry_broker.member.writes:GroupWrites"
KEYS = "unit/broker/queues/test_recent_keys.py"
TESTS = "unit/broker/member/test_repeats.py"
SENDS = "unit/broker/clients/test_repeated_sends.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    return Mutant(name, "repeats", what, (Edit(place, text, other),), UnitTests(killer))


MUTANTS = (
    _mutant(
        "settings-of-empty-keys-unheard",
        "a store that is opened with keys that know nothing yet takes others, with usual bounds",
        f"{STORE}.open",
        "RecentKeys() if recent is None else recent",
        "recent or RecentKeys()",
        f"{KEYS}::test_a_store_remembers_as_it_is_told_although_it_begins_with_nothing",
    ),
    _mutant(
        "keys-of-a-cut-log-kept",
        "what a former master had not confirmed is known when it is cut, and elsewhere",
        f"{STORE}.drop_mastership",
        "self.recent.cut(self.dispatched)",
        "pass",
        f"{KEYS}::test_a_master_knows_what_is_under_way_and_forgets_it_with_its_mastership",
    ),
    _mutant(
        "keys-of-a-former-log-kept",
        "a member that threw its log away takes places in it for places of the next one",
        f"{STORE}.reset",
        "self.recent.clear()",
        "pass",
        f"{KEYS}::test_a_log_that_is_thrown_away_takes_its_keys_along",
    ),
    _mutant(
        "what-is-under-way-unknown",
        "a repeat that comes before the first one is confirmed is stored, too",
        f"{STORE}.put",
        "self.recent.note(marks[0], records[0].physical_offset, timestamp, ways[0])",
        "pass",
        f"{TESTS}::test_a_repeat_of_what_is_under_way_waits_for_it",
    ),
    _mutant(
        "what-was-left-unknown",
        "the next master stores again what the last one stored and nobody has confirmed",
        f"{STORE}._foresee",
        "self.recent.note_record(record)",
        "pass",
        f"{TESTS}::test_the_next_mastership_knows_what_the_last_one_left",
    ),
    _mutant(
        "replicas-note-nothing",
        "the next master stores again what the last one has confirmed",
        "gantry_broker.queues.dispatcher:Dispatcher._take_all",
        "recent.note(mark, physical, stored_ms)",
        "pass",
        f"{KEYS}::test_a_replica_knows_what_was_dispatched",
    ),
    _mutant(
        "start-knows-nothing",
        "a member that was started anew stores again what was confirmed before",
        f"{STORE}.open",
        "store._dispatcher.remember(store.recent)",
        "store._dispatcher.recent = store.recent",
        f"{KEYS}::test_a_start_knows_the_keys_of_before",
    ),
    _mutant(
        "repeat-answered-before-it-is-confirmed",
        "a repeat is answered 0 while the first one is on the master's disk alone",
        f"{WRITES}._rest",
        "if any(record.physical_offset + record.size > confirm for record in found):",
        "if False:",
        f"{TESTS}::test_a_repeat_of_what_is_under_way_waits_for_it",
    ),
    _mutant(
        "repeat-answered-by-too-few",
        "a repeat is answered 0 while the set is smaller than its minimum",
        f"{WRITES}._rest",
        "elif master is not None and master.has_enough:",
        "elif True:",
        f"{TESTS}::test_a_repeat_is_not_acknowledged_where_too_few_are_in_sync",
    ),
    _mutant(
        "rest-of-a-batch-elsewhere",
        "a batch that was cut off is completed in another queue than its answer says",
        f"{WRITES}._rest",
        "sent.queue_id = found[0].queue_id",
        "pass",
        f"{TESTS}::test_a_batch_is_stored_once_and_what_was_cut_off_is_completed",
    ),
    _mutant(
        "key-alone-believed",
        "of two messages with one key the second is lost, and acknowledged",
        "gantry_broker.member.repeats:is_same",
        "and sent.body == record.body",
        "",
        f"{TESTS}::test_another_message_with_one_key_is_another_message",
    ),
    _mutant(
        "properties-not-compared",
        "a message with another tag is taken for the one before it",
        "gantry_broker.member.repeats:is_same",
        "and _said(sent) == _said(record)",
        "",
        f"{TESTS}::test_another_message_with_one_key_is_another_message",
    ),
    _mutant(
        "sent-twice-stored-once",
        "an object that a program sends twice on purpose is stored once",
        f"{REPEATS}._is_repeat",
        "if BORN_HOST in properties or not is_same_way:",
        "if True:",
        f"{TESTS}::test_one_object_sent_twice_is_two_messages",
    ),
    _mutant(
        "refusal-taken-for-an-answer",
        "who was answered 12 and tries again by its connection is stored twice",
        f"{REPEATS}._is_repeat",
        "answered_ms is None and record.physical_offset < self._store.dispatched",
        "False",
        f"{TESTS}::test_who_was_refused_repeats_what_is_stored_all_the_same",
    ),
    _mutant(
        "late-answer-taken-for-a-prompt-one",
        "who gave a send up after a second and repeats it by its connection is stored twice",
        f"{REPEATS}._is_repeat",
        "(answered_ms or now_ms) >= record.store_timestamp + PROMPT_MS",
        "False",
        f"{TESTS}::test_who_waited_for_long_repeats_what_it_sent",
    ),
    _mutant(
        "next-masters-clock-believed",
        "a master whose clock is ahead takes what was stored a moment ago for old",
        f"{REPEATS}._is_recent",
        "min(age_ms, by_client_ms)",
        "age_ms",
        f"{TESTS}::test_nothing_older_than_the_window_is_merged",
    ),
    _mutant(
        "retries-merged",
        "a message that fails a second time is not retried again",
        "gantry_broker.clients.plain_sends:PlainSender.store",
        "once = None",
        "pass",
        f"{SENDS}::test_what_a_consumer_gives_back_is_stored_each_time",
    ),
    _mutant(
        "fronts-repeats-stored",
        "a send that is repeated through a front is stored again",
        "gantry_broker.remote.session:Session._append_all",
        "once=self._number",
        "once=None",
        "unit/broker/front/test_front_asides.py"
        "::test_a_repeated_send_is_answered_with_the_place_where_it_is",
    ),
    Mutant(
        "repeats-stored",
        "repeats",
        "a send that is repeated after a lost answer is stored twice",
        (
            Edit(
                f"{WRITES}.append",
                "if is_known and once is not None:",
                "if False:",
            ),
        ),
        Seeds("product", 6),
    ),
)
