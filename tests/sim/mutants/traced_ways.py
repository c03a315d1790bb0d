"""Bugs in the traces of sends that come by way of a front or a proxy."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests, one_edit

_broker = one_edit("gantry_broker")
_proxy = one_edit("gantry_proxy")
_FRONT = "unit/broker/front/test_front_traces.py::"
_PASSED = "unit/broker/front/test_traced_passing.py::"
_PROXY = "unit/proxy/test_traced_sends.py::"
_SENDS = "unit/broker/clients/test_traced_sends.py::"
_AREA = "tracing"

MUTANTS: tuple[Mutant, ...] = (
    _broker(
        "masters-part-beside-the-fronts",
        _AREA,
        "a trace does not tell what the front waited for",
        "clients.core.send_trace:SendTrace.traceparent",
        "child_id(self.span_id, STORE)",
        "self.parent_id",
        UnitTests(f"{_FRONT}test_a_send_is_one_trace_of_both"),
    ),
    _broker(
        "parent-goes-to-the-first-of-a-frame",
        _AREA,
        "a send has the spans of another one that left with it",
        "remote.store:RemoteStore._name_parent",
        "gathered.parents[len(gathered.records) - 1] = self.parent",
        "gathered.parents[0] = self.parent",
        UnitTests(f"{_FRONT}test_each_send_of_a_turn_has_its_own_parent"),
    ),
    _broker(
        "fronts-word-is-not-checked",
        _AREA,
        "a front that says nonsense ends its link, or has traced what is not to be",
        "remote.traced_appends:TracedAppends.arrived",
        "if parent is None or not parent.sampled or not 0 <= at < len(message.records):",
        "if parent is None:",
        UnitTests(f"{_FRONT}test_a_parent_that_is_none_is_left_out"),
    ),
    _broker(
        "lost-appends-watched-for-ever",
        _AREA,
        "a master goes on to note each sync for sends that are answered elsewhere",
        "remote.traced_appends:TracedAppends.close",
        "self._sends.watched -= len(self._open)",
        "pass",
        UnitTests(f"{_FRONT}test_what_is_open_when_the_link_ends_is_counted_and_forgotten"),
    ),
    _broker(
        "nearest-parent-unread",
        _AREA,
        "the master's spans are beside the proxy's, or in no trace at all",
        "clients.traced_sends:named_parent",
        "nearest = parent_of(ext[TRACEPARENT]) if TRACEPARENT in ext else None",
        "nearest = None",
        UnitTests(f"{_SENDS}test_a_parent_that_a_process_on_the_way_names_is_nearer"),
    ),
    _broker(
        "passed-parent-untold",
        _AREA,
        "a front's trace ends at the front, and the master's spans are beside it",
        "front.traced_passing:TracedPipe._named",
        "frame=told + glimpse.frame",
        "frame=glimpse.frame",
        Seeds("product-traced", 2),
    ),
    _broker(
        "next-master-untold",
        _AREA,
        "a send amid a change of master is in two traces",
        "front.traced_passing:TracedPipe._name",
        "self._table.give(named)  # in place of the other",
        "pass",
        UnitTests(f"{_PASSED}test_the_next_master_is_told_the_same"),
    ),
    _broker(
        "told-parent-of-another-send",
        _AREA,
        "a send that its master did not take leaves its parent to the next one",
        "clients.parents:taken_parent",
        "told[0] != send.opaque",
        "False",
        UnitTests(f"{_SENDS}test_what_is_told_and_names_no_parent_of_a_send_is_forgotten"),
    ),
    _broker(
        "passed-on-without-an-answer-left-open",
        _AREA,
        "each send that wants no answer counts as dropped",
        "front.traced_passing:TracedPipe._begun",
        "glimpse.flag & _NO_REQUEST",
        "glimpse.flag & FLAG_RESPONSE",
        UnitTests(f"{_PASSED}test_a_send_without_an_answer_and_other_requests_have_no_span"),
    ),
    _broker(
        "every-send-decoded-where-a-front-traces",
        _AREA,
        "a front with a collector decodes all that it passes on",
        "front.traced_passing:PassedSends.begun",
        "if drawn >= self.ratio and not _may_be_sampled(glimpse.frame):",
        "if False:",
        UnitTests(f"{_PASSED}test_what_is_not_traced_is_neither_decoded_nor_made_anew"),
    ),
    _proxy(
        "proxy-names-its-own-parent",
        _AREA,
        "the master's spans are no part of the proxy's call",
        "core.send_trace:SendTrace.traceparent",
        "child_id(self.span_id, CALL)",
        "self.span_id",
        UnitTests(f"{_PROXY}test_the_masters_part_is_within_the_call"),
    ),
    _proxy(
        "proxy-traces-what-is-not-sampled",
        _AREA,
        "a parent that is not recorded gets children",
        "traced_sends:TracedProducing._begun",
        "is_sampled(parent, self.ratio, self._drawn())",
        "is_sampled(None, self.ratio, self._drawn())",
        UnitTests(f"{_PROXY}test_a_parent_decides_and_a_ratio_without_one"),
    ),
    _proxy(
        "who-gives-up-leaves-no-span",
        _AREA,
        "the sends that took too long are the ones that no trace shows",
        "traced_sends:TracedProducing._send_traced",
        'self._end(trace, "the client gave up")',
        "pass",
        UnitTests(f"{_PROXY}test_a_client_that_gives_up_leaves_a_span"),
    ),
    _proxy(
        "user-lost-on-the-traced-way",
        _AREA,
        "a traced send is refused where access is on",
        "producing:Producing.store",
        "call.behalf if routed is None else call.behalf | routed(group, topic)",
        "call.behalf if routed is None else routed(group, topic)",
        UnitTests(f"{_PROXY}test_the_masters_part_is_within_the_call"),
    ),
)
