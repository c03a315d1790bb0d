"""The owner's template: what it adds, what it can never take away, and whose names are taken."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.builders import broker_objects, controller_objects
from gantry_operator.builders.front import front_objects
from gantry_operator.models import BrokerGroup, ControllerGroup, FrontGroup, InvalidSpecError
from gantry_operator.models.containers import CONTAINERS, PORT_NAMES, PORT_RANGES, TREES, VARIABLES
from gantry_operator.models.volumes import OURS, RESERVED
from support import template_cases
from unit.operator.test_pod_golden import SPECS, templates

Json = dict[str, Any]
KINDS: dict[str, type[BrokerGroup | ControllerGroup | FrontGroup]] = {
    "broker": BrokerGroup,
    "controller": ControllerGroup,
    "front": FrontGroup,
}
BUILT = [found for name in SPECS for found in templates(name).values()]


def parsed(kind: str, template: Json, **spec: Any) -> BrokerGroup | ControllerGroup | FrontGroup:
    meta = {"name": "a", "namespace": "mq", "uid": "u"}
    return KINDS[kind].parse({"metadata": meta, "spec": {"template": {"spec": template}} | spec})


def workload(kind: str, template: Json, **spec: Any) -> Json:
    """The StatefulSet or Deployment of a group with this template."""
    group = parsed(kind, template, **spec)
    quorum = ControllerGroup.parse({"metadata": {"name": "gantry", "namespace": "mq"}})
    if isinstance(group, ControllerGroup):
        made = controller_objects(group, image="gantry:1")
    elif isinstance(group, FrontGroup):
        made = front_objects(group, quorum, image="gantry:1")
    else:
        made = broker_objects(group, quorum, image="gantry:1", replicas=3)
    (found,) = [one for one in made if one["kind"] in ("StatefulSet", "Deployment")]
    return found


def pod(kind: str, template: Json, **spec: Any) -> Json:
    found: Json = workload(kind, template, **spec)["spec"]["template"]["spec"]
    return found


def named(items: list[Json], name: str) -> Json:
    (found,) = [item for item in items if item["name"] == name]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_arrives(kind: str) -> None:
    made, plain = pod(kind, template_cases.FULL), pod(kind, {})
    full = template_cases.FULL
    assert (made["schedulerName"], made["runtimeClassName"]) == ("own", "gvisor")
    assert made["terminationGracePeriodSeconds"] == 60
    assert made["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 20000,
        "runAsGroup": 10001,
        "fsGroup": 0,
        "fsGroupChangePolicy": "Always",
        "supplementalGroups": [5, 6],
        "seccompProfile": {"type": "Localhost", "localhostProfile": "mq.json"},
        "seLinuxOptions": {"level": "s0:c1,c2"},
    }
    assert made["volumes"] == plain["volumes"] + full["volumes"]
    main, plain_main = made["containers"][0], plain["containers"][0]
    assert main["env"] == plain_main["env"] + full["container"]["env"]
    assert main["volumeMounts"] == plain_main["volumeMounts"] + full["container"]["volumeMounts"]
    assert main["startupProbe"] == plain_main["startupProbe"] | {"failureThreshold": 3600}
    assert main["livenessProbe"] == plain_main["livenessProbe"] | {"periodSeconds": 10}
    assert main["readinessProbe"] == plain_main["readinessProbe"]
    agent = copy.deepcopy(full["sidecars"][0])
    agent["ports"][0]["protocol"] = "TCP"
    agent["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": False,
        "runAsUser": 7,
    }
    assert made["containers"][1:] == [*plain["containers"][1:], agent]
    assert "securityContext" not in full["initContainers"][0]
    assert made["initContainers"] == [
        full["initContainers"][0] | {"securityContext": plain_main["securityContext"]}
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_else_changes(kind: str) -> None:
    made, plain = pod(kind, template_cases.FULL), pod(kind, {})
    told = {"schedulerName", "runtimeClassName", "initContainers"}
    told |= {"terminationGracePeriodSeconds", "securityContext", "volumes", "containers"}
    assert {key: part for key, part in made.items() if key not in told} == {
        key: part for key, part in plain.items() if key not in told
    }
    fields = {"env", "volumeMounts", "startupProbe", "livenessProbe"}
    for ours in plain["containers"]:
        main = named(made["containers"], ours["name"])
        changed = {key for key in main if main[key] != ours.get(key)}
        assert changed == (fields if ours["name"] == kind else set()), "a door gets nothing"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "template", [*template_cases.EDGES, template_cases.FULL, {}], ids=lambda case: str(case)[:60]
)
def test_no_template_leaves_the_restricted_standard(kind: str, template: Json) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted."""
    made = pod(kind, template)
    rights = made["securityContext"]
    assert rights["runAsNonRoot"] is True
    assert rights.get("runAsUser") != 0
    assert rights["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost")
    for container in made["containers"] + made.get("initContainers", []):
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert own.get("runAsUser") != 0
        assert not {"privileged", "procMount"} & own.keys()
        assert not any("hostPort" in port for port in container.get("ports", ()))
    allowed = {"configMap", "csi", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
    assert {key for volume in made["volumes"] for key in volume} - {"name"} <= allowed
    assert not {"hostNetwork", "hostPID", "hostIPC"} & made.keys()
    assert made["automountServiceAccountToken"] is False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("why", "template"), template_cases.REFUSED)
def test_the_model_refuses_what_the_api_server_refuses(kind: str, why: str, template: Json) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        parsed(kind, template)
    assert str(caught.value).startswith(why)
    assert str(caught.value).count(". ") <= 1, "one sentence"
    assert ": " in str(caught.value), "it says what to do"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"terminationGracePeriodSeconds": 29}, "greater than or equal to 30"),
        ({"terminationGracePeriodSeconds": 3601}, "less than or equal to 3600"),
        ({"securityContext": {"runAsUser": 0}}, "greater than or equal to 1"),
        (template_cases.beside(securityContext={"runAsUser": 0}), "greater than or equal to 1"),
        ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, "container_t"),
        (template_cases.volume(hostPath={"path": "/"}), "a volume is one of configMap"),
        (template_cases.mounted("/a/../var/lib/gantry"), "pattern"),
        (template_cases.mounted("/var/lib//gantry"), "pattern"),
        (template_cases.mounted("/tmp/"), "pattern"),
        (template_cases.mounted("tmp"), "pattern"),
        (
            template_cases.env(
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.containers"}}}
            ),
            "pattern",
        ),
        (
            template_cases.env({"name": "A", "value": "1"}, {"name": "A", "value": "2"}),
            "name each volume, variable and mountPath of a list once",
        ),
        ({"volumes": [template_cases.SCRATCH] * 2}, "list once"),
        ({"sidecars": template_cases.beside()["sidecars"] * 2}, "must have names of their own"),
    ],
)
def test_what_no_schema_lets_through_the_model_refuses_too(template: Json, words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        parsed("broker", template)


def test_a_change_is_a_new_revision_and_a_template_that_asks_for_nothing_is_none() -> None:
    def hash_of(template: Json) -> str:
        text: str = workload("broker", template)["metadata"]["annotations"][
            names.ANNOTATION_APPLIED
        ]
        return text

    empty: Json = {"volumes": [], "sidecars": [], "initContainers": [], "container": {}}
    assert hash_of({}) == hash_of(empty) == hash_of({"securityContext": {}})
    hashes = {
        key: hash_of({key: part})
        for key, part in template_cases.FULL.items()
        if key in ("schedulerName", "runtimeClassName", "terminationGracePeriodSeconds")
    }
    assert len({hash_of({}), *hashes.values()}) == 4


# The names that are taken are those that are in use.


def containers_of(spec: Json) -> list[Json]:
    found: list[Json] = spec["spec"]["containers"]
    return found


def test_the_names_of_our_volumes_are_taken() -> None:
    ours = {volume["name"] for built in BUILT for volume in built["spec"]["volumes"]}
    ours = {name for name in ours if not name.startswith(OURS)}
    assert ours - {"scratch"} <= set(RESERVED), "scratch is of the audit, which takes no template"
    assert set(RESERVED) - ours == set()


def test_the_names_of_our_containers_are_taken() -> None:
    ours = {container["name"] for built in BUILT for container in containers_of(built)}
    assert ours - {names.AUDIT} == set(CONTAINERS)


def test_our_ports_and_their_names_are_taken() -> None:
    for built in BUILT:
        for port in (one for made in containers_of(built) for one in made.get("ports", ())):
            number, name = port["containerPort"], port["name"]
            if number >= names.FIRST_SHARD_LISTENER_PORT:
                continue  # taken where there are such: `test_crd_rules`
            assert any(first <= number <= last for first, last in PORT_RANGES), port
            assert name in PORT_NAMES or name.startswith("group-"), port
    last_shard = names.FIRST_SHARD_PORT + names.MAX_SHARDS - 1
    last_front = names.FIRST_FRONT_PORT + names.MAX_FRONT_PORTS - 1
    assert max(last_shard, last_front) <= PORT_RANGES[-1][1]


def test_our_variables_and_paths_are_taken() -> None:
    for container in (one for built in BUILT for one in containers_of(built)):
        if container["name"] == names.AUDIT:
            continue
        for variable in container["env"]:
            assert variable["name"].startswith("GANTRY_") or variable["name"] in VARIABLES
        for mount in container.get("volumeMounts", ()):
            assert any(f"{mount['mountPath']}/".startswith(f"{tree}/") for tree in TREES), mount


# Any user.


@pytest.mark.parametrize("kind", KINDS)
def test_any_user_names_nobody_and_looks_below_the_root(kind: str) -> None:
    assert pod(kind, {"securityContext": {"anyUser": True}})["securityContext"] == {
        "runAsNonRoot": True,
        "fsGroupChangePolicy": "Always",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(
    ("wish", "policy"),
    [
        ({}, "OnRootMismatch"),
        ({"fsGroup": 5}, "OnRootMismatch"),
        ({"runAsUser": 5}, "Always"),
        ({"anyUser": True}, "Always"),
        ({"runAsUser": 5, "fsGroupChangePolicy": "OnRootMismatch"}, "OnRootMismatch"),
        ({"fsGroupChangePolicy": "Always"}, "Always"),
    ],
)
def test_another_user_can_write_what_one_before_left(wish: Json, policy: str) -> None:
    assert pod("broker", {"securityContext": wish})["securityContext"]["fsGroupChangePolicy"] == (
        policy
    )


def test_the_audit_runs_as_the_groups_user() -> None:
    tier = {"url": "s3://bucket", "credentialsSecret": {"name": "keys"}}
    spec = {"tier": tier, "pipeline": {"audit": {"schedule": "0 3 * * *"}}}

    def rights(template: Json) -> Json:
        group = parsed("broker", template, **spec)
        assert isinstance(group, BrokerGroup)
        quorum = ControllerGroup.parse({"metadata": {"name": "gantry", "namespace": "mq"}})
        made = broker_objects(group, quorum, image="gantry:1", replicas=3)
        (job,) = [one for one in made if one["kind"] == "CronJob"]
        found: Json = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["securityContext"]
        return found

    assert rights({"securityContext": {"anyUser": True}}) == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert rights({"securityContext": {"runAsUser": 7}})["runAsUser"] == 7


def test_the_golden_pods_are_of_groups_that_ask_for_none_of_this() -> None:
    asked = {key for _, spec in SPECS.values() for key in spec.get("template", {}).get("spec", {})}
    assert not asked & template_cases.FULL.keys()
