"""Bugs in settings that brokers apply while running."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests, one_edit

_broker = one_edit("gantry_broker")
_operator = one_edit("gantry_operator")
_FILE = "unit/broker/host/test_live_settings.py::"
_WISH = "unit/operator/test_live_settings.py::"
_AREA = "changes"

MUTANTS: tuple[Mutant, ...] = (
    _broker(
        "live-settings-of-all-kinds",
        _AREA,
        "a running broker gets half of a setting that two processes rest on",
        "host.live_settings:merged",
        "for name in LIVE}",
        "for name in BrokerSettings.model_fields}",
        UnitTests(f"{_FILE}test_what_needs_a_restart_is_left_alone"),
    ),
    _broker(
        "refused-settings-are-said-to-be-there",
        _AREA,
        "a broker says that it has the settings of a file that it refuses",
        "host.live_settings:LiveSettings.take",
        "self._word._replace(refused=found.refused)",
        "self._word._replace(applied=found.print, refused=found.refused)",
        UnitTests(f"{_FILE}test_a_file_that_nobody_could_start_with_changes_nothing"),
    ),
    _broker(
        "settings-of-a-file-that-changes",
        _AREA,
        "what was read of one file is said of the next one",
        "host.live_settings:SettingsFile.read",
        "if self._text() == text else None",
        "if text is not None else None",
        UnitTests(f"{_FILE}test_a_file_that_changes_while_it_is_read_is_read_again"),
    ),
    _operator(
        "live-settings-restart-pods",
        _AREA,
        "a setting that is applied while running restarts every pod",
        "builders.config:restarting",
        "if not (live and key in LIVE)",
        "if key",
        UnitTests(f"{_WISH}test_a_live_key_is_no_part_of_the_template"),
    ),
    _operator(
        "live-settings-of-an-older-image",
        _AREA,
        "an upgrade of the operator restarts every group, and older brokers are told in vain",
        "plan.broker:_objects",
        "live=_knows(seen, group.spec.image or seen.image, names.ANNOTATION_LIVE)",
        "live=True",
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
)
