"""Bugs between a front and its store: links, sessions, what a loss means."""

from __future__ import annotations

from sim.mutants.mutant import UnitTests, one_edit

_mutant = one_edit("gantry_broker")

MUTANTS = (
    _mutant(
        "lost-link-answers-nobody",
        "remote store",
        "producers of a front that lost its store wait for their time-outs",
        "remote.store:RemoteStore.lost",
        "done(_UNKNOWN)",
        "pass",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_a_lost_link_answers_every_append_as_unknown_and_the_rest_to_try_again"
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
            "unit/broker/remote/test_remote_store.py::test_a_lost_link_answers_every_append_as_unknown_and_the_rest_to_try_again"
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
            "unit/broker/remote/test_remote_store.py::test_after_the_link_is_lost_nothing_is_sent_any_more"
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
            "unit/broker/remote/test_remote_store.py::test_a_lost_link_answers_every_append_as_unknown_and_the_rest_to_try_again"
        ),
    ),
    _mutant(
        "appending-never-ends",
        "remote store",
        "a front refuses every send after a while",
        "remote.store:RemoteStore._appended",
        "self.appending_bytes -= size",
        "pass",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_nothing_is_answered_before_the_store_has_confirmed_it"
        ),
    ),
    _mutant(
        "confirm-may-fall",
        "remote store",
        "a confirm below an earlier one is believed",
        "remote.store:RemoteStore._confirmed",
        "if message.offset < self._offset:",
        "if False:",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_a_store_that_says_what_it_may_not_ends_its_link"
        ),
    ),
    _mutant(
        "serves-without-mastership",
        "remote store",
        "a store that is no master serves a front",
        "remote.serving:_objection",
        "if not host.serving:",
        "if False:",
        UnitTests("unit/broker/remote/test_serving.py::test_only_the_master_serves"),
    ),
    _mutant(
        "serves-while-cut-off",
        "remote store",
        "a store that may be deposed serves a front",
        "remote.serving:_objection",
        "if not host.takes_requests:",
        "if False:",
        UnitTests("unit/broker/remote/test_serving.py::test_only_the_master_serves"),
    ),
    _mutant(
        "session-ignores-refusals",
        "remote store",
        "a store takes sends that its group refuses",
        "remote.session:Session._append",
        "refusal = self._view.accepting_writes()",
        "refusal = None",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_the_store_checks_every_append_whatever_the_front_believes"
        ),
    ),
    _mutant(
        "session-keeps-listening",
        "remote store",
        "the session of every front that was ever served goes on reading the records of state",
        "remote.session:Session.end",
        "self._unsubscribe()",
        "pass",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_an_ended_session_reads_nothing_more"
        ),
    ),
    _mutant(
        "appending-without-bound",
        "remote store",
        "sends wait for a store in any size",
        "remote.store:RemoteStore._is_full",
        "self.appending_bytes > 0 and self.appending_bytes + size > APPENDING_BYTES_MAX",
        "False",
        UnitTests("unit/broker/remote/test_remote_store.py::test_what_is_under_way_is_bounded"),
    ),
    _mutant(
        "appending-in-any-number",
        "remote store",
        "small sends that wait for a store end its link",
        "remote.store:RemoteStore._is_full",
        "len(self._sends) >= WAITING_MAX",
        "False",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_no_more_sends_are_under_way_than_the_store_takes"
        ),
    ),
    _mutant(
        "reading-without-bound",
        "remote store",
        "pulls wait for a store in any number",
        "remote.store:RemoteStore.read",
        "elif len(self._reads) >= WAITING_MAX:",
        "elif False:",
        UnitTests("unit/broker/remote/test_remote_store.py::test_what_is_under_way_is_bounded"),
    ),
    _mutant(
        "front-writes-the-state",
        "H10",
        "a front that is wrong about a topic writes into the state of the group",
        "remote.session:Session._append",
        "elif any(check_target(record.topic) is not None for record in records):",
        "elif False:",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_what_only_the_master_writes_is_not_taken_from_a_front"
        ),
    ),
    _mutant(
        "resets-are-not-told",
        "remote store",
        "a consumer that reads through a front goes on where it was, whatever was reset",
        "remote.session:_resets_in",
        'return encode_rows(rows) if rows else b""',
        'return b""',
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_of_offsets_a_front_is_told_due_resets_alone"
        ),
    ),
    _mutant(
        "offsets-are-told",
        "remote store",
        "each front holds and hears all consumer offsets of a group",
        "remote.session:_resets_in",
        "rows = [row for row in decode_rows(body) if is_due(row[0])]",
        "rows = decode_rows(body)",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_of_offsets_a_front_is_told_due_resets_alone"
        ),
    ),
    _mutant(
        "newcomers-know-no-resets",
        "remote store",
        "a front that begins answers pulls of a group that was reset",
        "remote.session:Session._tables",
        "resets = [row for row in snapshot.committed if is_due(row[0])]",
        "resets = snapshot.committed[:0]",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_a_front_that_begins_is_told_of_a_reset_that_is_not_confirmed_yet"
        ),
    ),
    _mutant(
        "a-frame-for-each-send",
        "remote store",
        "a master reads, appends and answers each send of a front by itself",
        "remote.store:RemoteStore._gather",
        "gathered is not None",
        "False",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_the_sends_of_one_turn_leave_in_one_frame_and_are_stored_in_their_order"
        ),
    ),
    _mutant(
        "gathered-without-bound",
        "remote store",
        "a front keeps a master from everybody else with one frame",
        "remote.store:RemoteStore._gather",
        "len(gathered.records) < GATHERED_MAX",
        "True",
        UnitTests("unit/broker/remote/test_remote_store.py::test_a_frame_has_a_bounded_size"),
    ),
    _mutant(
        "gathered-in-any-size",
        "remote store",
        "large sends of one turn end the link of their front",
        "remote.store:RemoteStore._gather",
        "self._gathered_bytes <= GATHERED_BYTES",
        "True",
        UnitTests("unit/broker/remote/test_remote_store.py::test_a_frame_has_a_bounded_size"),
    ),
    _mutant(
        "added-to-what-has-left",
        "remote store",
        "a send is added to a frame that has left, and its client waits for ever",
        "remote.store:RemoteStore._leave",
        "if gathered is self._gathered:",
        "if False:",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_the_sends_of_one_turn_leave_in_one_frame_and_are_stored_in_their_order"
        ),
    ),
    _mutant(
        "places-of-the-first",
        "remote store",
        "a producer is told the place of another message",
        "remote.store:RemoteStore._appended",
        "message.stored[index : index + 1]",
        "message.stored[:1]",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_the_sends_of_one_turn_leave_in_one_frame_and_are_stored_in_their_order"
        ),
    ),
    _mutant(
        "one-bad-send-refuses-all",
        "remote store",
        "a message that no log can hold refuses those that came with it",
        "remote.session:Session._append_all",
        "if count > 1:",
        "if False:",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_a_send_that_cannot_be_stored_is_refused_alone"
        ),
    ),
    _mutant(
        "retried-sends-count-twice",
        "remote store",
        "a session ends its link after some bad messages: too many wait, it believes",
        "remote.session:Session._append_all",
        "self.unanswered -= count",
        "pass",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_a_send_that_cannot_be_stored_is_refused_alone"
        ),
    ),
    _mutant(
        "gathered-too-early",
        "remote store",
        "a frame leaves with the first send of a turn, and the others are never stored",
        "remote.link:StoreLink.send_later",
        "self._leave(make)",
        "self._leave(make())",
        UnitTests(
            "unit/broker/remote/test_link.py::test_frames_of_a_turn_leave_in_one_write_each_in_its_place"
        ),
    ),
    _mutant(
        "removed-group-is-served-from",
        "remote store",
        "a front appends to a store that its broker is closing",
        "remote.serving:StoreServer.remove",
        "self._hosts.pop(name, None)",
        "pass",
        UnitTests(
            "unit/broker/remote/test_serving.py::test_a_group_that_takes_no_part_is_not_served_from"
        ),
    ),
    _mutant(
        "removed-group-keeps-its-fronts",
        "remote store",
        "fronts stay with a member that begins anew",
        "remote.serving:StoreServer.remove",
        'self.end(name, "this broker takes no part in its group now")',
        "pass",
        UnitTests(
            "unit/broker/remote/test_serving.py::test_a_group_that_takes_no_part_is_not_served_from"
        ),
    ),
    _mutant(
        "one-demotion-ends-all-fronts",
        "remote store",
        "one group's election sends the fronts of all groups of a process away",
        "remote.serving:StoreServer.end",
        "list(self._sessions.get(name, {}))",
        "list(self._links)",
        UnitTests(
            "unit/broker/remote/test_serving.py::test_the_fronts_of_a_group_are_dismissed_when_its_mastership_ends"
        ),
    ),
    _mutant(
        "store-links-without-bound",
        "remote store",
        "strangers with the key take all descriptors of a broker",
        "remote.serving:StoreServer._opened",
        "if len(self._links) > LINKS_MAX:",
        "if False:",
        UnitTests("unit/broker/remote/test_serving.py::test_too_many_links_are_refused"),
    ),
    _mutant(
        "fronts-are-not-counted",
        "remote store",
        "a topic that is used through fronts looks idle",
        "remote.session:Session.received",
        "self._host.moved(message)",
        "pass",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_what_went_through_a_front_is_counted_at_the_store"
        ),
    ),
    _mutant(
        "counted-again-and-again",
        "remote store",
        "each beat of a front counts all its messages again",
        "clients.traffic:_taken",
        "counts.pop(name)",
        "counts[name]",
        UnitTests(
            "unit/broker/clients/test_inspection.py::test_what_is_taken_at_a_front_is_added_at_its_master"
        ),
    ),
    _mutant(
        "beat-of-any-size",
        "remote store",
        "a front with many topics ends its own links",
        "clients.traffic:_taken",
        "if len(name) <= NAME_CHARS",
        "if True",
        UnitTests("unit/broker/clients/test_inspection.py::test_what_is_taken_at_once_is_bounded"),
    ),
    _mutant(
        "full-fronts-are-cut",
        "remote store",
        "a front that has as much under way as it may is cut off with its next beat",
        "remote.session:Session.received",
        "if self.unanswered > UNANSWERED_MAX:",
        "if self.unanswered >= UNANSWERED_MAX:",
        UnitTests(
            "unit/broker/remote/test_remote_store.py::test_no_more_sends_are_under_way_than_the_store_takes"
        ),
    ),
    _mutant(
        "pulls-of-fronts-are-not-known",
        "remote store",
        "what consumers at fronts hold and have not committed is shown as not delivered",
        "host.hosting:HostedGroup._moved",
        "self.processor.pulled.note(*row)",
        "pass",
        UnitTests(
            "unit/broker/host/test_hosting.py::test_what_went_through_a_front_is_counted_while_this_is_the_master"
        ),
    ),
    _mutant(
        "positions-are-told-for-ever",
        "remote store",
        "a front tells each position that it ever served with each beat",
        "clients.pulled:PulledOffsets.take",
        "self._offsets.pop(key)",
        "self._offsets[key]",
        UnitTests("unit/broker/front/test_front_asides.py::test_a_pull_is_read_and_answered_here"),
    ),
)
