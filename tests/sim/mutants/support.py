"""Bugs in what people are handed when a cluster is not well: bundles, logs, checks."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests, one_edit

_operator = one_edit("gantry_operator")
_REDACT = "unit/operator/test_redact.py::"
_REPORT = "unit/operator/test_report.py::"
_LOGS = "unit/operator/test_group_logs.py::"
_DOCTOR = "unit/operator/test_doctor.py::test_what_is_amiss_is_told_with_what_to_do"
_DECISIONS = "unit/operator/test_decisions.py::"
_REPLAY = "unit/operator/test_replay.py::"
_FIGURES = "unit/operator/test_sync_figures.py::"
_PROBE = "unit/operator/test_probe.py::"
_CHECKS = "unit/operator/test_checks_probe.py::"
_AREA = "support"


def _bug(name: str, breaks: str, where: str, old: str, new: str, test: str) -> Mutant:
    return _operator(name, _AREA, breaks, where, old, new, UnitTests(test))


MUTANTS = (
    _bug(
        "redacted-by-keys-only",
        "a manifest within an annotation keeps its passwords",
        "redact:Redactor._string",
        "clean = self.value(file, inner, place, depth + 1)",
        "clean = inner",
        f"{_REPORT}test_no_planted_secret_is_in_the_bundle",
    ),
    _bug(
        "value-of-a-variable-kept",
        "the environment of a sidecar goes out with the bundle",
        "redact:Redactor._mapping",
        'elif key == "value" and isinstance(name, str) and is_secret_variable(name):',
        "elif False:",
        f"{_REDACT}test_objects_are_judged_by_their_keys",
    ),
    _bug(
        "key-without-its-begin",
        "a private key whose begin was cut off stays in a log",
        "redact:_without_keys",
        "_clear_before(lines, number)",
        "pass",
        f"{_REDACT}test_private_keys",
    ),
    _bug(
        "cut-within-a-line",
        "the rest of a secret whose name was cut off stays in a log",
        "support.pod_logs:last_bytes",
        'del kept[: kept.find(b"\\n") + 1 or len(kept)]',
        "pass",
        f"{_REPORT}test_logs_are_cut_at_the_begin_of_a_line",
    ),
    _bug(
        "written-unseen",
        "what stands in a list of refusals is not redacted",
        "support.bundle:_Files.put",
        "clean = self.redactor.text(path, text)",
        "clean = text",
        f"{_REPORT}test_no_planted_secret_is_in_the_bundle",
    ),
    _bug(
        "bundle-without-bounds",
        "a bundle grows with the cluster",
        "support.bundle:_Files.put",
        "len(data) > self.left",
        "False",
        f"{_REPORT}test_the_bundle_is_bounded",
    ),
    _bug(
        "a-refusal-ends-the-report",
        "who may not list nodes gets no bundle",
        "support.material:_Reading.all_of",
        'self._unread(f"{kind.plural}{where}", error)',
        "raise error",
        f"{_REPORT}test_what_may_not_be_read_is_listed_and_the_rest_is_there",
    ),
    _bug(
        "logs-one-after-the-other",
        "what two pods did at the same time stands far apart",
        "support.log_lines:merged",
        "key=lambda pair: pair[1].at_ns",
        "key=lambda pair: pair[0].name",
        f"{_LOGS}test_lines_of_all_pods_are_in_the_order_of_time",
    ),
    _bug(
        "followed-from-the-begin-again",
        "a lost connection repeats all that was shown",
        "support.group_logs:LogFollower._put",
        "if seen is not None and line.at_ns <= seen.at_ns:",
        "if False:",
        f"{_LOGS}test_logs_are_followed_also_those_of_later_pods_and_lost_connections",
    ),
    _bug(
        "ended-logs-opened-again",
        "the log of a container that has ended is shown every few seconds",
        "support.group_logs:LogFollower._follow",
        "self._ended.add(source.key)",
        "pass",
        f"{_LOGS}test_logs_are_followed_also_those_of_later_pods_and_lost_connections",
    ),
    _bug(
        "lease-of-yesterday",
        "an operator that has died counts as one that leads",
        "support.checks_around:_lease",
        "case.now - renewed > STALE_LEASE",
        "False",
        f"{_DOCTOR}[lease-stale]",
    ),
    _bug(
        "fields-that-are-dropped",
        "a CRD of an older version counts as well, and drops what is wished",
        "support.checks_around:fields",
        "found |= {here} | fields(part, here)",
        "found |= {path}",
        f"{_DOCTOR}[crd-older]",
    ),
    _bug(
        "sends-are-refused-and-all-is-well",
        "too few replicas in sync are told as one that lags",
        "support.checks_group:replicas",
        "if len(in_sync) < minimum:",
        "if not in_sync:",
        f"{_DOCTOR}[below-minimum]",
    ),
    _bug(
        "quorum-on-a-node",
        "nobody hears that one node takes the quorum along",
        "support.checks_group:spread",
        "2 * most > case.replicas",
        "most > case.replicas",
        f"{_DOCTOR}[quorum-on-one-node]",
    ),
    _bug(
        "bound-is-enough",
        "a volume that did not grow counts as well",
        "support.checks_group:_claim",
        "elif size and view.capacity and is_larger(size, view.capacity):",
        "elif False:",
        f"{_DOCTOR}[small]",
    ),
    _bug(
        "restart-without-a-word",
        "a container that is killed for want of memory again and again counts as well",
        "support.checks_group:_restarted",
        'if ended and case.age(ended.get("finishedAt")) < RECENT:',
        "if False:",
        f"{_DOCTOR}[restarted]",
    ),
    _bug(
        "worst-finding-forgotten",
        "a script goes on though something fails",
        "support.doctor:exit_code",
        "max(",
        "min(",
        f"{_DOCTOR}[no-master]",
    ),
    _bug(
        "one-log-takes-all-room",
        "the logs of the last pods are left out for those of the first",
        "support.report:shares",
        "room // max(1, len(fit))",
        "room",
        f"{_REPORT}test_logs_share_the_room",
    ),
    _bug(
        "decisions-for-every-pod",
        "any pod of the cluster reads the specs of all namespaces",
        "decisions.serving:Decisions.answer",
        'if not _is_loopback(request.remote or ""):',
        "if False:",
        f"{_DECISIONS}test_decisions_are_served_to_the_loopback_address_alone",
    ),
    _bug(
        "copy-of-a-decision-not-tried",
        "a right operator is said to have decided otherwise, for want of a password",
        "decisions.recorder:written",
        "altered=file.is_altered(result)",
        "altered=False",
        f"{_DECISIONS}test_a_decision_that_is_another_without_its_secrets_is_told_apart",
    ),
    _bug(
        "only-what-was-seen-counts-as-the-same",
        "what the operator did otherwise about what it had seen before is not on record",
        "decisions.recorder:DecisionRing.note",
        "if before.same == same:",
        "if before.same and before.same[0] == read:",
        f"{_DECISIONS}test_what_was_done_differs_although_the_same_was_seen",
    ),
    _bug(
        "facts-of-actions-not-compared",
        "another version that waits longer passes for the same",
        "decisions.replay:_compared",
        "_differ(found, place, _facts(recorded[one]), _facts(now[other]))",
        "pass",
        f"{_REPLAY}test_a_word_that_differs_is_shown_at_its_place",
    ),
    _bug(
        "end-of-a-bundle-not-read",
        "a bundle that was cut off passes for a whole one",
        "support.replay:_read",
        "while whole.read(CHUNK_BYTES):",
        "while False:",
        f"{_REPLAY}test_a_file_that_is_cut_off",
    ),
    _bug(
        "half-of-them-for-p99",
        "a disk that is slow at every tenth sync counts as quick",
        "support.sync_figures:Buckets.p99_s",
        "math.ceil(RANK * self.count)",
        "math.ceil(self.count / 2)",
        f"{_FIGURES}test_99_of_100_are_within_the_bound",
    ),
    _bug(
        "window-of-two-processes",
        "a process that began anew between two readings is measured by what it never did",
        "support.sync_figures:_between",
        "counts[0] >= 0 and counts == sorted(counts)",
        "True",
        f"{_FIGURES}test_two_readings",
    ),
    _bug(
        "p99-of-three-syncs",
        "a figure of an idle disk rests on hardly anything",
        "support.sync_figures:figure",
        "within >= SYNCS_MIN",
        "within",
        f"{_FIGURES}test_two_readings",
    ),
    _bug(
        "slow-disk-is-well",
        "a disk that holds every send up counts as well",
        "support.checks_probe:syncs",
        "if found.p99_s > SYNC_WARN_S:",
        "if False:",
        f"{_CHECKS}test_syncs",
    ),
    _bug(
        "way-counts-as-the-broker",
        "a user on another continent is told that his brokers are slow",
        "support.checks_probe:trip",
        "found.sent_s - (found.way_s or 0.0)",
        "found.sent_s",
        f"{_CHECKS}test_a_message",
    ),
    _bug(
        "any-message-is-the-probes",
        "a message is told to be read though another one stands in its place",
        "support.round_trip:_Trip._read",
        "one.queue_offset == offset and one.body == self._body",
        "one.queue_offset == offset",
        f"{_PROBE}test_another_message_at_its_place_is_no_way_back",
    ),
    _bug(
        "probe-sends-though-refused",
        "a probe sends although it was told that it may not",
        "support.round_trip:_Trip._measure_way",
        "if answer.code == ResponseCode.NO_PERMISSION:",
        "if False:",
        f"{_PROBE}test_who_may_not_ask_sends_nothing",
    ),
    _bug(
        "lost-answer-taken-for-nothing",
        "a message whose answer was lost is told not to be there",
        "support.round_trip:_Trip._send_and_read",
        "self._is(stored=True)",
        "self._is(stored=False)",
        f"{_PROBE}test_a_send_without_an_answer_may_be_stored_and_is_not_repeated",
    ),
    _bug(
        "broken-way-without-a-reason",
        "a probe does not tell that nobody listens there, and calls the pod silent",
        "api.port_forward:Passage.problem",
        "return error if isinstance(error, Unavailable) else None",
        "return None",
        f"{_PROBE}test_a_port_where_nobody_listens",
    ),
    _bug(
        "sleepers-are-probed",
        "a hibernated group is told to fail",
        "support.probe:planned",
        "if case.asleep:",
        "if False:",
        f"{_PROBE}test_a_group_that_sleeps_is_left_alone",
    ),
    _bug(
        "message-to-a-pod-that-goes",
        "a probe fails because of a pod that is being deleted",
        "support.probe:_is_ready",
        'is_ready and not pod["metadata"].get("deletionTimestamp")',
        "is_ready",
        f"{_PROBE}test_a_pod_that_is_not_ready_or_about_to_go_takes_no_message",
    ),
)
