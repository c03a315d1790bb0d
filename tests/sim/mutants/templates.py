"""Bugs in what a template adds to pods, and in whose files a volume's are."""

from __future__ import annotations

from sim.mutants.mutant import UnitTests, one_edit

_operator = one_edit("gantry_operator")
_protocol = one_edit("gantry_protocol")
_broker = one_edit("gantry_broker")
_ARRIVES = UnitTests("unit/operator/test_template.py::test_every_field_arrives")
_CHANGES = UnitTests("unit/operator/test_template.py::test_nothing_else_changes")
_RESTRICTED = UnitTests(
    "unit/operator/test_template.py::test_no_template_leaves_the_restricted_standard"
)
_SAME = UnitTests("unit/operator/test_pod_golden.py")

MUTANTS = (
    _operator(
        "pods-roll-for-nothing",
        "operator",
        "an upgrade of the operator restarts the pods of groups that ask for nothing",
        "builders.template:extended",
        "if wanted}",
        "if wanted is not None}",
        _SAME,
    ),
    _operator(
        "additions-replace-ours",
        "operator",
        "a variable or a mount of a template takes the place of those that a process needs",
        "builders.template:_extended",
        "[*main.get(field, ()), *map(_lean, added)]",
        "[*map(_lean, added)]",
        _ARRIVES,
    ),
    _operator(
        "probe-asks-nothing",
        "operator",
        "a probe that is tuned asks no path any more",
        "builders.template:_extended",
        "made[field] = main[field] | timing.to_object()",
        "made[field] = timing.to_object()",
        _ARRIVES,
    ),
    _operator(
        "door-is-the-first-container",
        "operator",
        "what is meant for the broker goes to its door",
        "builders.template:extended",
        'main, *beside = pod["containers"]',
        'main, *beside = reversed(pod["containers"])',
        _CHANGES,
    ),
    _operator(
        "sidecar-with-privileges",
        "operator",
        "a container of a template may gain privileges, and no restricted namespace takes the pod",
        "builders.template:container_security",
        "made if wish is None else made | wish.to_object()",
        "made if wish is None else wish.to_object()",
        _RESTRICTED,
    ),
    _operator(
        "any-user-is-ours",
        "operator",
        "pods name a user where the platform refuses every name",
        "builders.template:security",
        "if not wish.any_user:",
        "if True:",
        UnitTests(
            "unit/operator/test_template.py::test_any_user_names_nobody_and_looks_below_the_root"
        ),
    ),
    _operator(
        "files-stay-another-users",
        "operator",
        "a group whose user changes does not open its volumes",
        "builders.template:security",
        "moved = wish.any_user or wish.run_as_user is not None",
        "moved = wish.any_user",
        UnitTests(
            "unit/operator/test_template.py::test_another_user_can_write_what_one_before_left"
        ),
    ),
    _operator(
        "path-above-ours-is-free",
        "operator",
        "a mount above the data directory hides it",
        "models.containers:_is_ours",
        'f"{tree}/".startswith(f"{path}/") or ',
        "",
        UnitTests(
            "unit/operator/test_template.py::test_the_model_refuses_what_the_api_server_refuses"
        ),
    ),
    _operator(
        "words-of-others-repeated",
        "operator",
        "the log of somebody's sidecar comes into the status of a group",
        "plan.crashes:kept",
        "heard = name in HEARD",
        "heard = True",
        UnitTests(
            "unit/operator/test_crashes.py::test_a_container_of_others_is_named_and_not_repeated"
        ),
    ),
    _operator(
        "ours-comes-last",
        "operator",
        "a sidecar that ends hides why the broker beside it does",
        "plan.crashes:_urgency",
        ", ended.container in HEARD",
        ", ended.container not in HEARD",
        UnitTests("unit/operator/test_crashes.py::test_ours_comes_first_where_both_end"),
    ),
    _protocol(
        "files-kept-from-the-group",
        "shell",
        "the next user of a volume cannot write what this one leaves",
        "process.datadir:share_with_group",
        "os.umask(before & ~stat.S_IWGRP)",
        "os.umask(before)",
        UnitTests(
            "unit/protocol/test_datadir.py::test_files_are_the_groups_where_the_directory_is"
        ),
    ),
    _protocol(
        "every-file-is-the-groups",
        "shell",
        "files that are one user's are written for a group",
        "process.datadir:share_with_group",
        "if directory.stat().st_mode & _SHARED == _SHARED:",
        "if directory.stat().st_mode & _SHARED:",
        UnitTests(
            "unit/protocol/test_datadir.py::test_files_are_the_groups_where_the_directory_is"
        ),
    ),
    _broker(
        "lock-of-another-user-stays",
        "shell",
        "a store does not open again after a change of the process's user",
        "queues.kv:KeyValue.__init__",
        "_replace_lock_of_another_user(directory / _LOCK)",
        "pass",
        UnitTests("unit/broker/queues/test_another_user.py"),
    ),
)
