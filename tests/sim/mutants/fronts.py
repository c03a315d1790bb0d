"""Bugs in fronts: what they answer themselves, and what becomes of it when a store is lost."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

ASIDES = "gantry_broker.front.asides:Asides"
PULLS = "gantry_broker.clients.pull_asides:PullAsides"
ROUTER = "gantry_broker.clients.routing"
SPLICE = "gantry_protocol.remoting.splice:Splice"
FRONT = "unit/broker/front/test_front_asides.py"
AGEING = "unit/broker/front/test_ageing.py"
DIRECTORY = "unit/broker/front/test_directory.py"
SERVED = "unit/broker/front/test_served_groups.py"
PASSED = "unit/broker/clients/test_asides.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    return Mutant(name, "fronts", what, (Edit(place, text, other),), UnitTests(killer))


MUTANTS = (
    _mutant(
        "consumers-age",
        "consumer groups divide their queues anew every two minutes",
        "gantry_broker.front.ageing:end_old",
        "if _consumes(way):",
        "if False:",
        AGEING,
    ),
    _mutant(
        "pulls-are-no-sign",
        "a consumer whose heartbeat is too long to be kept loses its connection again and again",
        "gantry_broker.front.ageing:_consumes",
        "if way.is_quiet and way.waiting:",
        "if False:",
        AGEING,
    ),
    _mutant(
        "old-ones-go-at-once",
        "all clients that came together connect again in the same second",
        "gantry_broker.front.ageing:_part",
        "_SPREAD * (number",
        "0 * (number",
        AGEING,
    ),
    _mutant(
        "ended-without-an-answer",
        "a send that is under way when its connection is old fails",
        "gantry_broker.front.ageing:end_old",
        "elif way.is_idle:",
        "elif True:",
        AGEING,
    ),
    _mutant(
        "answers-for-another-epoch",
        "a front reads from the store of a master while its client is led to another one",
        f"{ASIDES}.take",
        "or pipe.epoch != self._epoch",
        "",
        f"{FRONT}::test_nothing_is_taken_for_a_client_that_is_led_to_another_master",
    ),
    _mutant(
        "takes-what-is-not-offered",
        "a front goes around tenants' quotas, and fills a full disk",
        f"{ASIDES}.take",
        "or not state.is_offered",
        "",
        f"{FRONT}::test_nothing_is_taken_that_the_master_does_not_offer",
    ),
    _mutant(
        "stores-half-messages-plainly",
        "a half message that goes through a front is delivered before it is committed",
        "gantry_broker.clients.plain_sends:is_plain",
        "in _FOR_THE_MASTER",
        "in (_TIMER_START, DELAY_TIME_LEVEL)",
        f"{FRONT}::test_a_send_that_needs_more_is_the_masters",
    ),
    _mutant(
        "batches-of-any-size",
        "a batch that the group's setting forbids is stored through a front",
        "gantry_broker.clients.plain_sends:is_plain",
        "not header.batch",
        "True",
        f"{FRONT}::test_a_send_that_needs_more_is_the_masters",
    ),
    _mutant(
        "stores-retries-plainly",
        "a message that is retried for ever never reaches the dead letters through a front",
        "gantry_broker.clients.plain_sends:is_plain",
        "and not header.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))",
        "",
        f"{FRONT}::test_a_send_that_needs_more_is_the_masters",
    ),
    _mutant(
        "sends-to-a-leaving-master",
        "sends that a draining master would hold are refused through a front",
        f"{ASIDES}._send",
        "or self._view.accepting_writes() is not None",
        "",
        f"{FRONT}::test_no_send_is_taken_while_the_master_takes_none",
    ),
    _mutant(
        "pulls-on-old-settings",
        "a consumer group that was forbidden goes on reading through a front",
        f"{PULLS}.pull",
        "not self._settings.is_current or ",
        "",
        f"{FRONT}::test_no_pull_is_taken_before_the_newest_settings_are_read",
    ),
    _mutant(
        "pulls-past-a-reset",
        "a consumer whose offset was reset goes on where it is",
        f"{PULLS}.pull",
        "or due_reset(self._store.committed, *place) is not None",
        "",
        f"{FRONT}::test_a_pull_with_a_due_reset_is_the_masters_and_one_that_waits_is_sent_back",
    ),
    _mutant(
        "waits-past-a-reset",
        "a consumer that waits for messages hears of a reset once some come",
        f"{PULLS}._offsets_moved",
        'self._reader.send_back(pull, "the offset was reset")',
        "pass",
        f"{FRONT}::test_a_pull_with_a_due_reset_is_the_masters_and_one_that_waits_is_sent_back",
    ),
    _mutant(
        "positions-stay-at-the-front",
        "a consumer that reads through a front begins anew after it was killed",
        f"{PULLS}._pass_on",
        "pipe.say(encode(request(code, to_ext(header), oneway=True)))",
        "pass",
        f"{FRONT}::test_a_position_is_passed_on_when_it_is_news_and_not_too_often",
    ),
    _mutant(
        "an-old-subscription-is-believed",
        "a client that has unsubscribed is given messages through a front",
        "gantry_broker.clients.pull_asides:PullingClient.group",
        "if heartbeat is not self._heartbeat:",
        "if self._heartbeat is None:",
        f"{FRONT}::test_a_pull_is_read_by_what_its_clients_heartbeat_says",
    ),
    _mutant(
        "lost-store-answers-its-clients",
        "a send under way is answered 'unknown' when a store is lost, and stored twice",
        f"{ROUTER}:ClientRouter.take_back",
        "if pipe.take_back():",
        "if False:",
        f"{PASSED}::test_what_waits_here_when_the_store_is_lost_goes_to_the_same_master",
    ),
    _mutant(
        "all-clients-move",
        "each client of a front is led anew when a store is lost, and leaves its consumer groups",
        f"{ROUTER}:ClientRouter.take_back",
        "if pipe.take_back():",
        "if pipe.take_back() or True:",
        f"{PASSED}::test_a_client_without_anything_waiting_here_stays_where_it_is",
    ),
    _mutant(
        "asides-are-not-waited-for",
        "a former master is left at once, with what the front was about to answer",
        f"{SPLICE}._without_asides",
        "self._table.give(glimpse)",
        "pass",
        f"{PASSED}::test_a_former_master_is_left_once_what_waits_here_is_answered",
    ),
    _mutant(
        "waits-for-what-it-answered",
        "a front that ends waits in vain, and cuts its clients between two requests",
        f"{SPLICE}.answered_here",
        "self._table.answered(opaque)",
        "pass",
        f"{PASSED}::test_a_process_that_ends_answers_first_and_does_not_wait_longer",
    ),
    _mutant(
        "put-off-is-forgotten",
        "requests behind a share of the loop's time are lost when the master changes",
        f"{SPLICE}._wait_with_put_off",
        "self._table.wait(glimpse)",
        "pass",
        f"{PASSED}::test_what_was_put_off_is_for_the_next_master",
    ),
    _mutant(
        "a-client-has-the-loop",
        "one client that sends much keeps a front from everybody else",
        f"{SPLICE}._without_asides",
        "if now_s - begun_s > SHARE_S:",
        "if False:",
        f"{PASSED}::test_one_client_has_a_share_of_the_loop_at_a_time",
    ),
    _mutant(
        "retired-group-stays",
        "a front keeps the port of a group that is gone until another one comes or goes",
        "gantry_broker.front.server:FrontServer._told",
        "self._place(self._rows)",
        "pass",
        f"{SERVED}::test_a_group_that_is_gone_is_let_go_of_though_nothing_is_new",
    ),
    _mutant(
        "late-answers-close-ports",
        "a front ends the connections of a group that a controller has not heard of yet",
        "gantry_broker.front.core.directory:Directory.heard",
        "missed_s >= GONE_S or index in taken",
        "True",
        f"{DIRECTORY}::test_a_group_that_one_answer_leaves_out_stays",
    ),
    _mutant(
        "breaks-do-not-count",
        "a group that is left out now and then is let go of",
        "gantry_broker.front.core.directory:Directory.heard",
        "self._missed_s.pop(name, None)",
        "pass",
        f"{DIRECTORY}::test_a_group_that_one_answer_leaves_out_stays",
    ),
)
