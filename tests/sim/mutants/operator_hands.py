"""Bugs in what the operator does with the API server's answers, its Lease and its own faults."""

from __future__ import annotations

from sim.mutants.mutant import UnitTests, one_edit

_mutant = one_edit("gantry_operator")
_shared = one_edit("gantry_protocol")
REFUSED = "unit/operator/test_refused_writes.py"

MUTANTS = (
    _mutant(
        "slow-answer-is-a-bug",
        "operator",
        "an API server that does not answer in time counts as a fault of the operator",
        "api.kube:KubeApi._send",
        "except TimeoutError as error:",
        "except ZeroDivisionError as error:",
        UnitTests(
            "unit/operator/test_api.py::test_a_server_that_does_not_answer_in_time_is_unavailable"
        ),
    ),
    _mutant(
        "end-undone-by-a-time-out",
        "operator",
        "a worker whose request times out as it is told to end goes on, and the process never ends",
        "api.kube:KubeApi._send",
        "_request_timeout=_NO_TOTAL",
        "_request_timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)",
        UnitTests("unit/operator/test_api.py::test_who_is_told_to_end_with_a_time_out_ends"),
    ),
    _shared(
        "end-undone-by-silent-controllers",
        "operator",
        "a worker that waits for controllers as it is told to end goes on",
        "admin_client.quorum:Quorum._send",
        "total=None",
        "total=ATTEMPT_TIMEOUT_S",
        UnitTests(
            "unit/protocol/test_admin_client.py::test_who_is_told_to_end_with_a_time_out_ends"
        ),
    ),
    _mutant(
        "second-signal-unheard",
        "operator",
        "an operator that does not come to its end cannot be ended but by SIGKILL",
        "shell:run_watches",
        "runtime.take_signals()",
        "None",
        UnitTests("unit/operator/test_shell.py"),
    ),
    _shared(
        "signals-left-to-a-library",
        "operator",
        "signals that kopf took are not given back",
        "process.runtime:_Supervisor.run",
        "_taking.set(self._take_signals)",
        "None",
        UnitTests("unit/operator/test_shell.py"),
    ),
    _mutant(
        "list-ends-with-its-first-page",
        "operator",
        "what stands on later pages of a list counts as deleted",
        "api.kube:KubeApi.list_all",
        "if not token:",
        "if True:",
        UnitTests("unit/operator/test_api.py::test_a_list_is_read_in_chunks"),
    ),
    _mutant(
        "rotated-token-refused-for-ever",
        "operator",
        "a token that was replaced is never read again",
        "api.kube:KubeApi._read",
        "if status == 401:",
        "if False:",
        UnitTests("unit/operator/test_api.py::test_a_rotated_token_is_read_again_once"),
    ),
    _mutant(
        "ending-namespace-taken-for-missing-rights",
        "operator",
        "a namespace that ends is reported as a lack of rights",
        "api.errors:error_of",
        "Ending if status == 403 and ENDING in causes else ",
        "",
        UnitTests("unit/operator/test_api.py::test_a_namespace_that_ends_is_no_lack_of_rights"),
    ),
    _mutant(
        "lease-counts-from-its-answer",
        "operator",
        "an operator acts for as long as a request took after its Lease has ended",
        "lease:LeaderElection._write",
        "self._renewed = started",
        "self._renewed = self._now()",
        UnitTests("unit/operator/test_lease.py::test_a_lease_counts_from_before_it_was_asked_for"),
    ),
    _mutant(
        "lease-waits-for-a-dead-connection",
        "operator",
        "an operator that waits for the Lease is held up by one request without an answer",
        "lease:LeaderElection._attempt",
        "asyncio.timeout(ATTEMPT_S)",
        "asyncio.timeout(None)",
        UnitTests(
            "unit/operator/test_lease.py"
            "::test_who_waits_does_not_wait_for_a_request_without_an_answer"
        ),
    ),
    _mutant(
        "live-lease-taken-over",
        "operator",
        "two operators act at a time",
        "lease:LeaderElection._is_expired",
        "if self._seen[0] != version:",
        "if not self._seen[0]:",
        UnitTests("unit/operator/test_lease.py::test_a_live_holder_is_waited_for"),
    ),
    _mutant(
        "standby-carries-out-whole-plans",
        "operator",
        "an operator without the Lease builds and disrupts",
        "reconcile.worker:Reconciler._look",
        "if not leads:",
        "if False:",
        UnitTests(
            "unit/operator/test_reconcile.py::test_who_does_not_lead_writes_and_retires_nothing"
        ),
    ),
    _mutant(
        "standby-retires-groups",
        "operator",
        "an operator without the Lease takes groups off record",
        "reconcile.worker:Reconciler._look",
        " and self._leads()",
        "",
        UnitTests(
            "unit/operator/test_reconcile.py::test_who_does_not_lead_writes_and_retires_nothing"
        ),
    ),
    _mutant(
        "first-fault-of-the-server-is-told",
        "operator",
        "a fault that passes by itself is written into the status",
        "reconcile.worker:Reconciler._remember",
        "if lasting or not refusal.passing",
        "if True",
        UnitTests(
            "unit/operator/test_reconcile.py::test_a_fault_of_the_server_is_told_only_once_it_lasts"
        ),
    ),
    _mutant(
        "busy-server-asked-again-at-once",
        "operator",
        "an API server that asks for patience gets none",
        "reconcile.worker:Reconciler.reconcile",
        "self._queue.retry(key, at_least_s=at_least_s)",
        "self._queue.retry(key)",
        UnitTests("unit/operator/test_reconcile.py::test_a_busy_api_server_is_waited_for"),
    ),
    _mutant(
        "key-never-done",
        "operator",
        "a resource that was looked at once is never looked at again",
        "reconcile.worker:Reconciler.work",
        "self._queue.done(key)",
        "pass",
        UnitTests("unit/operator/test_reconcile.py::test_workers_go_on_after_a_failure"),
    ),
    _mutant(
        "gone-quorum-followed-on",
        "operator",
        "the stream of a quorum that is gone goes on for ever",
        "reconcile.worker:Reconciler._forget",
        "self._directory.drop(key.namespace, key.name)",
        "pass",
        UnitTests("unit/operator/test_reconcile.py::test_a_deleted_resource_is_forgotten"),
    ),
    _mutant(
        "lost-event-fails-the-plan",
        "operator",
        "a plan counts as failed because words about it were lost",
        "reconcile.events:post_event",
        "except ApiError as error:",
        "except ZeroDivisionError as error:",
        UnitTests("unit/operator/test_apply.py::test_a_lost_event_loses_nothing_else"),
    ),
    _mutant(
        "event-of-any-length",
        "operator",
        "an event is refused for its length",
        "reconcile.events:post_event",
        "event.note[:MAX_NOTE]",
        "event.note",
        UnitTests("unit/operator/test_apply.py::test_an_event_says_no_more_than_fits"),
    ),
    _mutant(
        "emptied-secret-remembered",
        "operator",
        "a Secret that somebody emptied comes back empty, and splits the processes",
        "reconcile.quorum_secrets:Secrets._exists",
        "if content:",
        "if content is not None:",
        UnitTests(
            "unit/operator/test_quorum_secrets.py::test_one_that_was_emptied_and_deleted_comes_back_as_the_processes_have_it"
        ),
    ),
    _mutant(
        "deleted-secret-made-anew",
        "operator",
        "a Secret that was deleted comes back with another content than the processes have",
        "reconcile.quorum_secrets:Secrets.ensure",
        "self._known.get((namespace, name)) or ",
        "",
        UnitTests(
            "unit/operator/test_quorum_secrets.py::test_a_deleted_secret_comes_back_as_it_was"
        ),
    ),
    _mutant(
        "silent-stream-trusted",
        "operator",
        "a stream of role changes that says nothing counts as one",
        "quorums.watch:RoleWatch._follow",
        "asyncio.timeout(SILENCE_S)",
        "asyncio.timeout(None)",
        UnitTests("unit/operator/test_role_watch.py::test_a_silent_stream_is_a_dead_one"),
    ),
    _mutant(
        "older-epoch-is-news",
        "operator",
        "a late line of an earlier epoch makes the operator look again",
        "quorums.watch:RoleWatch.take",
        "event.master_epoch < epoch or ",
        "",
        UnitTests("unit/operator/test_role_watch.py::test_what_is_news"),
    ),
    _mutant(
        "refused-step-held-back",
        "operator",
        "a step that was refused is not planned, so its refusal is taken back and all begins anew",
        "plan.acceptance:_settle",
        "steps = all(refusal.step for refusal in refused)",
        "steps = not refused",
        UnitTests(f"{REFUSED}::test_a_step_that_is_refused_is_told_and_tried_later_each_time"),
    ),
    _mutant(
        "refused-label-logged-alone",
        "operator",
        "a label that the API server refuses is tried again for ever, and no condition says so",
        "reconcile.apply:_written",
        "target = None if isinstance(action, act.WriteStatus) else target_of(key, action)",
        "target = target_of(key, action) if _is_whole(action) else None",
        UnitTests(f"{REFUSED}::test_a_label_that_is_refused_is_told_and_stops_no_status"),
    ),
    _mutant(
        "unread-secret-made-again",
        "operator",
        "a Secret that cannot be read counts as one that is gone",
        "reconcile.quorum_secrets:Secrets.survey",
        "unread[name] = error",
        "absent.append(name)",
        UnitTests(f"{REFUSED}::test_a_secret_that_is_refused_is_told_by_its_quorum"),
    ),
    _mutant(
        "unread-secret-untold",
        "operator",
        "nobody is told that a quorum's Secret cannot be read",
        "reconcile.worker:Reconciler._look",
        "outcome.refusals += self._observer.unread.get(key, ())",
        "outcome.refusals += ()",
        UnitTests(f"{REFUSED}::test_a_secret_that_is_refused_is_told_by_its_quorum"),
    ),
    _mutant(
        "refused-status-untold",
        "operator",
        "a status that cannot be written leaves the old one, and nobody is told",
        "reconcile.worker:Reconciler._tell_unwritten",
        "if outcome.refused_status is None:",
        "if True:",
        UnitTests(f"{REFUSED}::test_a_status_that_is_refused_is_told_by_an_event"),
    ),
    _mutant(
        "refused-finalizer-untold",
        "operator",
        "a topic whose finalizer is refused waits without a word",
        "reconcile.entities:Entities._finalize",
        "self._refuse(key, seen, why, outcome)",
        "raise",
        UnitTests(
            "unit/operator/test_tables.py"
            "::test_a_finalizer_that_is_refused_is_told_once_and_tried_again"
        ),
    ),
)
