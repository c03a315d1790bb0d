"""Bugs between a broker without a disk and its store: links, sessions, what a loss means."""

from __future__ import annotations

from sim.mutants.mutant import UnitTests, one_edit

_mutant = one_edit("gantry_broker")

MUTANTS = (
    _mutant(
        "lost-link-answers-nobody",
        "remote store",
        "producers of a broker without a store wait for their time-outs",
        "remote.store:RemoteStore.lost",
        "done(_UNKNOWN)",
        "pass",
        UnitTests(
            "unit/broker/clients/test_remote_store.py::test_a_lost_link_answers_every_append_as_unknown_and_the_rest_to_try_again"
        ),
    ),
    _mutant(
        "lost-link-counts-as-stored",
        "remote store",
        "a send whose answer was lost with the link is answered 0",
        "remote.store:RemoteStore.lost",
        "done(_UNKNOWN)",
        "done(SendOutcome(ResponseCode.SUCCESS, None))",
        UnitTests(
            "unit/broker/clients/test_remote_store.py::test_a_lost_link_answers_every_append_as_unknown_and_the_rest_to_try_again"
        ),
    ),
    _mutant(
        "lost-link-is-asked-on",
        "remote store",
        "a store that is gone is asked, and nobody is answered",
        "remote.store:RemoteStore.lost",
        "self._is_lost = True",
        "pass",
        UnitTests(
            "unit/broker/clients/test_remote_store.py::test_after_the_link_is_lost_nothing_is_sent_any_more"
        ),
    ),
    _mutant(
        "lost-link-leaves-readers",
        "remote store",
        "pulls of a lost store are never answered",
        "remote.store:RemoteStore.lost",
        "was_read(_LOST)",
        "pass",
        UnitTests(
            "unit/broker/clients/test_remote_store.py::test_a_lost_link_answers_every_append_as_unknown_and_the_rest_to_try_again"
        ),
    ),
    _mutant(
        "lost-link-leaves-changes",
        "remote store",
        "topic changes at a lost store are never answered",
        "remote.store:RemoteStore.lost",
        "changed(_LOST)",
        "pass",
        UnitTests(
            "unit/broker/clients/test_remote_store.py::test_a_lost_link_answers_every_append_as_unknown_and_the_rest_to_try_again"
        ),
    ),
    _mutant(
        "appending-never-ends",
        "remote store",
        "a broker refuses every send after a while",
        "remote.store:RemoteStore.received",
        "self.appending_bytes -= size",
        "pass",
        UnitTests(
            "unit/broker/clients/test_remote_store.py::test_nothing_is_answered_before_the_store_has_confirmed_it"
        ),
    ),
    _mutant(
        "appending-without-bound",
        "remote store",
        "sends wait for a store in any number",
        "remote.store:RemoteStore.append",
        "elif self.appending_bytes and self.appending_bytes + size > APPENDING_BYTES_MAX:",
        "elif False:",
        UnitTests("unit/broker/clients/test_remote_store.py::test_what_is_under_way_is_bounded"),
    ),
    _mutant(
        "asking-without-bound",
        "remote store",
        "questions wait for a store in any number",
        "remote.store:RemoteStore._refusal",
        "if self.waiting >= WAITING_MAX:",
        "if False:",
        UnitTests("unit/broker/clients/test_remote_store.py::test_what_is_under_way_is_bounded"),
    ),
    _mutant(
        "confirm-may-fall",
        "remote store",
        "a confirm below an earlier one is believed",
        "remote.store:RemoteStore._confirmed",
        "if message.offset < self._offset:",
        "if False:",
        UnitTests(
            "unit/broker/clients/test_remote_store.py::test_a_store_that_says_what_it_may_not_ends_its_link"
        ),
    ),
    _mutant(
        "serves-without-mastership",
        "remote store",
        "a store that is no master serves a broker",
        "remote.serving:StoreServer._objection",
        "if not self._host.serving:",
        "if False:",
        UnitTests(
            "unit/broker/remote/test_serving.py::test_only_the_master_serves_and_one_broker_at_a_time"
        ),
    ),
    _mutant(
        "serves-while-cut-off",
        "remote store",
        "a store that may be deposed serves a broker",
        "remote.serving:StoreServer._objection",
        "if not self._host.takes_requests:",
        "if False:",
        UnitTests(
            "unit/broker/remote/test_serving.py::test_only_the_master_serves_and_one_broker_at_a_time"
        ),
    ),
    _mutant(
        "session-ignores-refusals",
        "remote store",
        "a store takes sends that its group refuses",
        "remote.session:Session._append",
        "refusal = self._view.accepting_writes()",
        "pass",
        UnitTests(
            "unit/broker/clients/test_remote_store.py::test_the_store_checks_every_append_whatever_the_broker_believes"
        ),
    ),
    _mutant(
        "session-keeps-listening",
        "remote store",
        "the session of every broker that was ever served goes on reading the records of state",
        "remote.session:Session.end",
        "self._unsubscribe()",
        "pass",
        UnitTests(
            "unit/broker/clients/test_remote_store.py::test_an_ended_session_reads_nothing_more"
        ),
    ),
    _mutant(
        "told-offsets-fall-back",
        "H10",
        "a broker that begins at a new master delivers what was delivered before it",
        "remote.session:Session._as_told",
        "self._foreseen.get(row[:3], row[3])",
        "row[3]",
        UnitTests(
            "unit/broker/clients/test_remote_store.py::test_an_offset_that_was_told_does_not_fall_back_when_older_records_are_confirmed"
        ),
    ),
)
