"""Bugs in the operator's rules of fronts: whom clients are led to, and who sets their number."""

from __future__ import annotations

from sim.mutants.mutant import UnitTests, one_edit

_mutant = one_edit("gantry_operator")
_PLAN = "unit/operator/test_plan_fronts.py::"
_BUILT = "unit/operator/test_front_builders.py::"
_SHELL = "unit/operator/test_fronts.py::"

MUTANTS = (
    _mutant(
        "led-to-fronts-before-one-is-ready",
        "fronts",
        "clients are led to fronts of which none serves",
        "plan.front_steps:declare_fronts",
        "if not any(pod.ready for pod in seen.pods):",
        "if False:",
        UnitTests(f"{_PLAN}test_nobody_is_led_to_fronts_of_which_none_is_ready"),
    ),
    _mutant(
        "fronts-end-at-once",
        "fronts",
        "a deleted front refuses clients that nodes still lead to it",
        "builders.front:_deployment",
        "pods.led_on(_container(group, controllers, image, addressed, live))",
        "_container(group, controllers, image, addressed, live)",
        UnitTests(f"{_BUILT}test_a_deleted_front_serves_until_no_node_leads_clients_to_it"),
    ),
    _mutant(
        "led-no-longer",
        "fronts",
        "a deleted front or door refuses clients that nodes still lead to it",
        "builders.pods:led_on",
        "str(LED_FOR_S)",
        '"0"',
        UnitTests(f"{_BUILT}test_a_deleted_front_serves_until_no_node_leads_clients_to_it"),
    ),
    _mutant(
        "doors-end-at-once",
        "doors",
        "a deleted door refuses clients that nodes still lead to it",
        "builders.broker:_door",
        "pods.led_on(",
        "dict(",
        UnitTests(
            "unit/operator/test_builders.py::test_a_deleted_door_serves_until_no_node_leads_to_it"
        ),
    ),
    _mutant(
        "age-of-connections-untold",
        "fronts",
        "a wished age of connections changes nothing",
        "builders.front:_settings",
        "str(group.spec.connection_age_seconds)",
        '"120"',
        UnitTests(f"{_BUILT}test_a_front_is_told_how_old_a_connection_may_get"),
    ),
    _mutant(
        "led-to-fronts-without-the-finalizer",
        "fronts",
        "a deletion may leave clients with an address where nobody is",
        "plan.front_steps:declare_fronts",
        " or names.FRONTS_FINALIZER not in seen.meta.finalizers",
        "",
        UnitTests(f"{_PLAN}test_nobody_is_led_there_before_the_finalizer_is_on"),
    ),
    _mutant(
        "led-to-fronts-that-are-gone",
        "fronts",
        "clients are led to fronts of which none has served for a while",
        "plan.front_steps:declare_fronts",
        "return [RemoveFronts()] if nobody else []",
        "return []",
        UnitTests(f"{_PLAN}test_fronts_that_are_all_gone_for_a_while_lead_nobody"),
    ),
    _mutant(
        "ports-declared-before-they-listen",
        "fronts",
        "clients of a new group are led to fronts that do not listen for it yet",
        "plan.front_steps:wished_declaration",
        "if before is not None and not rolled_out(seen.deployment):",
        "if False:",
        UnitTests(f"{_PLAN}test_ports_that_were_added_count_once_every_front_listens_on_them"),
    ),
    _mutant(
        "fronts-go-while-clients-are-led-there",
        "fronts",
        "the pods of a deleted FrontGroup go before clients are led back",
        "plan.front_steps:delete_front_group",
        "if declared(seen) is not None:",
        "if False:",
        UnitTests(f"{_PLAN}test_a_deletion_leads_clients_back_first"),
    ),
    _mutant(
        "fronts-go-before-clients-have-heard",
        "fronts",
        "the pods go while clients still hold the old routes",
        "plan.front_steps:delete_front_group",
        "if left_s > 0:",
        "if False:",
        UnitTests(f"{_PLAN}test_fronts_serve_on_while_clients_may_still_hold_the_old_routes"),
    ),
    _mutant(
        "withdrawal-begins-anew-each-time",
        "fronts",
        "each look at a deletion begins the wait anew, so it never ends",
        "plan.front_status:_ways",
        "(old.withdrawn_at or timestamp(now))",
        "timestamp(now)",
        UnitTests(f"{_PLAN}test_the_moment_of_the_withdrawal_stays"),
    ),
    _mutant(
        "replicas-written-beside-the-autoscaler",
        "fronts",
        "the operator takes back how many fronts an autoscaler wants",
        "builders.front:_deployment",
        "by_spec = not group.spec.autoscaling.enabled",
        "by_spec = True",
        UnitTests(f"{_PLAN}test_the_operator_leaves_replicas_to_the_autoscaler"),
    ),
    _mutant(
        "replicas-let-go-of",
        "fronts",
        "all fronts but one end when an autoscaler takes over",
        "plan.front:_keeping_replicas",
        "return msgspec.structs.replace(action, kept=kept)",
        "return action",
        UnitTests(f"{_PLAN}test_the_number_of_fronts_stays_when_an_autoscaler_takes_over"),
    ),
    _mutant(
        "replicas-taken-by-nobody",
        "fronts",
        "nobody owns the replicas when the operator lets go of them",
        "reconcile.apply:Applier._apply_object",
        "if action.kept is not None:",
        "if False:",
        UnitTests(f"{_SHELL}test_replicas_have_another_owner_before_the_operator_lets_go_of_them"),
    ),
    _mutant(
        "second-front-group-accepted",
        "fronts",
        "two FrontGroups of one cluster fight for its clients",
        "plan.acceptance:accept_front_group",
        "if seen.before:",
        "if False:",
        UnitTests(f"{_PLAN}test_a_second_front_group_of_a_cluster_is_refused"),
    ),
    _mutant(
        "latest-front-group-serves",
        "fronts",
        "a new FrontGroup takes the clients of the one that serves",
        "reconcile.observe:Observer._front",
        "first = min(",
        "first = max(",
        UnitTests(f"{_SHELL}test_the_front_group_that_was_there_first_serves_the_cluster"),
    ),
    _mutant(
        "older-broker-told-of-a-store-port",
        "fronts",
        "a broker of an older image serves no client itself any more",
        "plan.broker:_objects",
        "knows_fronts=_knows(seen, group.spec.image or seen.image, names.ANNOTATION_FRONTS)",
        "knows_fronts=True",
        UnitTests(
            "unit/operator/test_image_turns.py::"
            "test_a_group_opens_its_store_to_fronts_with_the_image_that_serves_both"
        ),
    ),
)
