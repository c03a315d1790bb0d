"""Bugs in settings that processes apply while running."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests, one_edit

_broker = one_edit("gantry_broker")
_operator = one_edit("gantry_operator")
_protocol = one_edit("gantry_protocol")
_proxy = one_edit("gantry_proxy")
_FILE = "unit/broker/host/test_live_settings.py::"
_WISH = "unit/operator/test_live_settings.py::"
_EXPORT = "unit/protocol/tracing/test_export.py::"
_SENDS = "unit/broker/clients/test_traced_sends.py::"
_HOST = "unit/broker/host/test_hosting.py::"
_QUORUM = "unit/operator/test_live_settings_of_controllers.py::"
_CALLS = "unit/proxy/test_traced_sends.py::"
_FRONTS = "unit/operator/test_live_settings_of_fronts.py::"
_SERVED = "unit/broker/front/test_served_groups.py::"
_PASSED = "unit/broker/front/test_traced_passing.py::"
_ASIDES = "unit/broker/front/test_front_traces.py::"
_AREA = "changes"

MUTANTS: tuple[Mutant, ...] = (
    _protocol(
        "live-settings-of-all-kinds",
        _AREA,
        "a running broker gets half of a setting that two processes rest on",
        "process.live_settings:merged",
        "for name in live}",
        "for name in type(running).model_fields}",
        UnitTests(f"{_FILE}test_what_needs_a_restart_is_left_alone"),
    ),
    _protocol(
        "refused-settings-are-said-to-be-there",
        _AREA,
        "a broker says that it has the settings of a file that it refuses",
        "process.live_settings:SettingsWatch.take",
        "self._word._replace(refused=found.refused)",
        "self._word._replace(applied=found.print, refused=found.refused)",
        UnitTests(f"{_FILE}test_a_file_that_nobody_could_start_with_changes_nothing"),
    ),
    _protocol(
        "settings-of-a-file-that-changes",
        _AREA,
        "what was read of one file is said of the next one",
        "process.live_settings:SettingsFile.read",
        "if self._text() == text else None",
        "if text is not None else None",
        UnitTests(f"{_FILE}test_a_file_that_changes_while_it_is_read_is_read_again"),
    ),
    _operator(
        "live-settings-restart-pods",
        _AREA,
        "a setting that is applied while running restarts every pod",
        "builders.config:restarting",
        "if key not in live",
        "if key",
        UnitTests(f"{_WISH}test_a_live_key_is_no_part_of_the_template"),
    ),
    _operator(
        "live-settings-of-an-older-image",
        _AREA,
        "an upgrade of the operator restarts every group, and older brokers are told in vain",
        "plan.live_settings:live_now",
        "return newest if is_new else live_word(workload)",
        "return newest",
        UnitTests(f"{_WISH}test_an_upgrade_of_the_operator_restarts_nothing"),
    ),
    _operator(
        "silence-means-applied",
        _AREA,
        "a change counts as finished although a broker has not said that it has it",
        "plan.live_settings:applying",
        "for pod in pods} if under_way else {}",
        "for pod in pods if not pod.name} if under_way else {}",
        UnitTests(f"{_WISH}test_a_change_is_finished_once_every_broker_says_so"),
    ),
    _operator(
        "file-of-the-next-image-before-its-approval",
        _AREA,
        "a process that crashes reads a file that was made for an image nobody approved",
        "plan.approval:ensure_meanwhile",
        "applies_live(statefulset) and not applies_live(live)",
        "False",
        UnitTests(
            f"{_WISH}test_a_live_change_waits_for_no_approval_and_the_file_for_a_new_image_does"
        ),
    ),
    _operator(
        "what-is-new-of-an-image-that-knows-less",
        _AREA,
        "tracing is switched on by a file that the image in the pods reads and does not apply",
        "builders.config:live_keys",
        "since.get(word, since[next(reversed(since))])",
        "since[next(reversed(since))]",
        UnitTests(f"{_WISH}test_an_image_that_applies_less_has_the_rest_by_a_roll"),
    ),
    _broker(
        "a-second-sender-with-keys-of-its-own",
        _AREA,
        "two messages of a group have one key, given before and after tracing was switched on",
        "clients.traced_sends:TracedSender.instead_of",
        "_sends=sends",
        "_sends=sends, _unique_keys=type(vars(sender)['_unique_keys'])('1')",
        UnitTests(f"{_SENDS}test_a_sender_that_traces_goes_on_with_the_keys_of_the_one_before"),
    ),
    _broker(
        "no-way-in-for-traced-sends",
        _AREA,
        "tracing that is switched on traces nothing until the next mastership",
        "host.hosting:HostedGroup.tune",
        "self._let_in(self.processor)",
        "pass",
        UnitTests(f"{_HOST}test_tracing_is_switched_amid_a_mastership"),
    ),
    _protocol(
        "spans-that-wait-when-tracing-goes-off",
        _AREA,
        "spans that wait when tracing is switched off are lost, and counted nowhere",
        "tracing.export:SpanExport._run",
        "self.dropped[OFF] += len(self._queue)",
        "pass",
        UnitTests(f"{_EXPORT}test_off_waits_for_no_collector_that_is_away"),
    ),
    _protocol(
        "a-collector-for-good",
        _AREA,
        "spans go on to the first collector although another one is named",
        "tracing.export:SpanExport.point_to",
        "if endpoint is not None:",
        "if endpoint is not None and not self._url:",
        UnitTests(f"{_EXPORT}test_another_collector_gets_what_waits"),
    ),
    _operator(
        "live-settings-roll-a-quorum",
        _AREA,
        "another level of logs rolls the controllers",
        "builders.controller:_workload",
        "restarting(group.spec.config, live_keys(live, names.CONTROLLER))",
        "group.spec.config",
        UnitTests(f"{_QUORUM}test_a_live_change_applies_the_file_alone_and_rolls_nothing"),
    ),
    _operator(
        "a-silent-controller-has-the-settings",
        _AREA,
        "a change counts as applied although a controller fell silent before it said so",
        "plan.controller:_settings",
        "last is not None and last.reason == Reason.APPLYING_SETTINGS",
        "False",
        UnitTests(
            f"{_QUORUM}test_a_change_is_under_way_until_every_controller_has_said_that_it_has_it"
        ),
    ),
    _protocol(
        "the-leader-speaks-for-all-controllers",
        _AREA,
        "what the leader has applied counts as what every controller has",
        "admin_client.admin:Admin.view",
        "words.get(peer.id, {})",
        "words[best.node_id]",
        UnitTests(
            "unit/protocol/test_admin_client.py::test_each_controller_speaks_for_its_own_settings"
        ),
    ),
    _operator(
        "live-settings-of-an-older-controller",
        _AREA,
        "an upgrade of the operator rolls quorums, and older controllers are told in vain",
        "plan.controller:_objects",
        "live=live_now(",
        "live=NEWEST_LIVE_OF_CONTROLLERS or live_now(",
        UnitTests(f"{_QUORUM}test_an_upgrade_of_the_operator_rolls_no_quorum"),
    ),
    _broker(
        "clients-of-a-front-untraced",
        _AREA,
        "tracing is switched on at a front, and clients that are connected have no spans",
        "front.led_group:LedGroup.trace",
        "TracedPipe.take_over(pipe, self._passed)",
        "pass",
        UnitTests(f"{_SERVED}test_settings_that_change_are_in_force_for_groups_and_their_stores"),
    ),
    _broker(
        "store-of-a-front-untraced",
        _AREA,
        "tracing is switched on at a front, and what it answers itself has no spans",
        "front.led_group:LedGroup.trace",
        "self._trace_asides(self.asides, self._spans)",
        "pass",
        UnitTests(f"{_SERVED}test_settings_that_change_are_in_force_for_groups_and_their_stores"),
    ),
    _broker(
        "passed-sends-traced-after-the-end",
        _AREA,
        "tracing is switched off at a front, and each send that it passes on is still judged",
        "front.traced_passing:PassedSends.begun",
        "if not self.is_on:",
        "if False:",
        UnitTests(f"{_PASSED}test_clients_that_are_there_are_traced_from_now_on_and_no_more"),
    ),
    _broker(
        "answered-sends-traced-after-the-end",
        _AREA,
        "tracing is switched off at a front, and masters are told to trace what it answers",
        "clients.traced_sends:OpenSends.is_on",
        "return self._export.is_on",
        "return True",
        UnitTests(f"{_ASIDES}test_a_front_that_is_told_to_trace_no_more_ends_what_is_under_way"),
    ),
    _broker(
        "a-group-misses-a-change",
        _AREA,
        "a group that a front opens while settings change is served with those before",
        "front.server:FrontServer._serve",
        "group.trace(self.settings.tracing_ratio)",
        "pass",
        UnitTests(f"{_SERVED}test_a_group_that_is_opened_amid_a_change_has_the_new_settings"),
    ),
    _operator(
        "live-settings-replace-fronts",
        _AREA,
        "another collector replaces all fronts, and ends all connections",
        "builders.front:_container",
        "restarting(_settings(group), live_keys(live, names.FRONT))",
        "_settings(group)",
        UnitTests(f"{_FRONTS}test_a_live_change_applies_the_file_alone_and_replaces_no_front"),
    ),
    _operator(
        "live-settings-of-an-older-front",
        _AREA,
        "an upgrade of the operator replaces all fronts, and older ones are told in vain",
        "plan.front:_objects",
        "live=live)",
        "live=NEWEST_LIVE_OF_FRONTS)",
        UnitTests(f"{_FRONTS}test_an_upgrade_of_the_operator_replaces_no_front"),
    ),
    _operator(
        "fronts-marked-for-nothing",
        _AREA,
        "each new front group has its pods written once more",
        "plan.live_settings:look_at",
        'if action.manifest["kind"] != "ConfigMap" or not action.exists:',
        'if action.manifest["kind"] != "ConfigMap":',
        UnitTests(f"{_FRONTS}test_fronts_that_are_made_with_their_file_are_not_marked"),
    ),
    _operator(
        "the-file-of-a-front-names-what-its-image-does-not-apply",
        _AREA,
        "an image that does not know a setting refuses to start with it",
        "builders.front:_file",
        "if key in keys",
        "",
        UnitTests(f"{_FRONTS}test_an_image_that_applies_less_has_the_rest_by_its_environment"),
    ),
    _proxy(
        "a-proxy-traces-after-the-end",
        _AREA,
        "tracing is switched off at a proxy, and masters are told to trace its sends",
        "traced_sends:TracedProducing.send",
        "self._begun(wanted, call) if self._export.is_on else None",
        "self._begun(wanted, call)",
        UnitTests(f"{_CALLS}test_tracing_is_switched_from_one_send_to_the_next"),
    ),
    _proxy(
        "a-users-level-is-undone",
        _AREA,
        "another setting of a proxy undoes the level of logs that a user has set",
        "server:ProxyServer._tune",
        "if settings.log_level != self.settings.log_level:",
        "if True:",
        UnitTests(
            "unit/proxy/test_live_settings.py::"
            "test_a_level_that_a_user_has_set_stays_amid_another_change"
        ),
    ),
)
