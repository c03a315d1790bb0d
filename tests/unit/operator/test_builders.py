"""Built objects: what other parts rely on by name, and what must never depend on anything else."""

from __future__ import annotations

import copy
import re
import tomllib
from typing import Any

import pytest
from gantry_broker.door import DoorSettings
from gantry_broker.host.settings import BrokerSettings
from gantry_broker.retention.core.rules import RetentionBounds
from gantry_controller.settings import ControllerSettings
from gantry_operator import names
from gantry_operator.builders import broker_objects, controller_objects, quorum_secret
from gantry_operator.builders.config import broker_settings, toml
from gantry_operator.models import BrokerGroup, ControllerGroup
from gantry_operator.models.controller_group import ControllerGroupSpec
from gantry_operator.models.parts import RESERVED_SETTINGS
from gantry_protocol.process.config import load_settings
from gantry_protocol.quorum_key import ALLOW_HELP

Objects = dict[tuple[str, str], dict[str, Any]]


def controllers(name: str = "gantry", **spec: Any) -> ControllerGroup:
    meta = {"name": name, "namespace": "mq", "uid": "cg-uid"}
    return ControllerGroup.parse({"metadata": meta, "spec": spec})


def brokers(name: str = "orders", **spec: Any) -> BrokerGroup:
    meta = {"name": name, "namespace": "mq", "uid": "bg-uid"}
    return BrokerGroup.parse({"metadata": meta, "spec": spec})


def by_name(manifests: list[dict[str, Any]]) -> Objects:
    return {(m["kind"], m["metadata"]["name"]): m for m in manifests}


def built(group: BrokerGroup | None = None, **changes: Any) -> Objects:
    arguments: dict[str, Any] = {"image": "gantry:1", "replicas": 3} | changes
    return by_name(broker_objects(group or brokers(), controllers(), **arguments))


def statefulset(group: BrokerGroup | None = None, **changes: Any) -> dict[str, Any]:
    return built(group, **changes)["StatefulSet", "orders-broker"]


def applied_hash(manifest: dict[str, Any]) -> str | None:
    value: str | None = manifest["metadata"].get("annotations", {}).get(names.ANNOTATION_APPLIED)
    return value


def env(manifest: dict[str, Any]) -> dict[str, Any]:
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container["env"]}


def containers(group: BrokerGroup | None = None, **changes: Any) -> list[dict[str, Any]]:
    found = statefulset(group, **changes)["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, list)
    return found


def test_a_broker_group_owns() -> None:
    assert set(built()) == {
        ("ConfigMap", "orders-broker"),
        ("Service", "orders-broker"),
        ("Service", "orders"),
        ("Service", "orders-master"),
        ("PodDisruptionBudget", "orders-broker"),
        ("NetworkPolicy", "orders-broker"),
        ("StatefulSet", "orders-broker"),
    }


def test_a_controller_group_owns() -> None:
    assert set(by_name(controller_objects(controllers(), image="gantry:1"))) == {
        ("ConfigMap", "gantry-controller"),
        ("Service", "gantry-controller"),
        ("Service", "gantry-nameserver"),
        ("PodDisruptionBudget", "gantry-controller"),
        ("NetworkPolicy", "gantry-controller"),
        ("StatefulSet", "gantry-controller"),
    }


def test_everything_goes_with_its_owner_and_says_who_manages_it() -> None:
    manifests = list(built().values()) + controller_objects(controllers(), image="gantry:1")
    for manifest in manifests:
        (reference,) = manifest["metadata"]["ownerReferences"]
        assert reference["controller"] is True
        assert reference["uid"] in ("bg-uid", "cg-uid")
        assert manifest["metadata"]["labels"][names.LABEL_MANAGED_BY] == "gantry-operator"
        assert applied_hash(manifest)


def test_environment_of_a_broker() -> None:
    assert env(statefulset()) == {
        "GANTRY_NAME": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
        "GANTRY_POD_UID": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}},
        "POD_IP": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}},
        "GANTRY_BIND": "$(POD_IP)",
        "GANTRY_ADVERTISE": "$(POD_IP)",
        "GANTRY_DATA_DIR": "/var/lib/gantry",
        "GANTRY_CONFIG": "/etc/gantry/config/gantry.toml",
        "GANTRY_GROUP": "orders",
        "GANTRY_CLUSTER": "gantry",
        "GANTRY_CONTROLLERS": (
            "gantry-controller-0.gantry-controller.mq.svc:9878,"
            "gantry-controller-1.gantry-controller.mq.svc:9878,"
            "gantry-controller-2.gantry-controller.mq.svc:9878"
        ),
        "GANTRY_QUORUM_KEY_FILE": "/etc/gantry/quorum/key",
    }


def test_environment_of_a_controller() -> None:
    objects = by_name(controller_objects(controllers(replicas=1), image="gantry:1"))
    settings = env(objects["StatefulSet", "gantry-controller"])
    assert settings["GANTRY_PEERS"] == "1=gantry-controller-0.gantry-controller.mq.svc"
    assert settings["GANTRY_CLUSTER_UID"] == "cg-uid"
    assert settings["GANTRY_ADMIN_TOKEN_FILE"] == "/etc/gantry/admin/token"


@pytest.mark.parametrize("component", ["broker", "controller"])
def test_the_key_of_the_quorum_is_a_file_that_only_the_pods_group_can_read(component: str) -> None:
    objects = by_name(controller_objects(controllers(), image="gantry:1")) | built()
    owner = {"broker": "orders", "controller": "gantry"}[component]
    manifest = objects["StatefulSet", f"{owner}-{component}"]
    pod = manifest["spec"]["template"]["spec"]
    (volume,) = [v for v in pod["volumes"] if v["name"] == "quorum-key"]
    assert volume["secret"] == {"secretName": "gantry-quorum-key", "defaultMode": 0o440}
    # No subPath: the kubelet never replaces such a file, and rotation rests on its doing so.
    mount = {"name": "quorum-key", "mountPath": "/etc/gantry/quorum", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]
    file = f"{mount['mountPath']}/{names.QUORUM_KEY}"
    assert env(manifest)["GANTRY_QUORUM_KEY_FILE"] == file
    assert "secretKeyRef" not in str(manifest)
    settings = {"broker": BrokerSettings, "controller": ControllerSettings}[component]
    assert settings.model_fields["quorum_key_file"]
    assert "quorum_key_file" in RESERVED_SETTINGS


def test_whoever_shows_no_key_is_believed_only_by_request() -> None:
    def told(**spec: Any) -> dict[str, Any]:
        objects = by_name(controller_objects(controllers(**spec), image="gantry:1"))
        return env(objects["StatefulSet", "gantry-controller"])

    assert "GANTRY_ALLOW_UNAUTHENTICATED" not in told()
    assert told(allowUnauthenticated=True)["GANTRY_ALLOW_UNAUTHENTICATED"] == "true"
    assert "allow_unauthenticated" in ControllerSettings.model_fields
    assert "allow_unauthenticated" in RESERVED_SETTINGS
    said = ControllerGroupSpec.model_fields["allow_unauthenticated"].description or ""
    ports = re.compile(r"\b98[0-9]{2}\b")
    assert set(ports.findall(said)) == {"9876", "9878"} <= set(ports.findall(ALLOW_HELP))


def test_quorum_created_again_keeps_the_identity_it_is_given() -> None:
    manifests = by_name(controller_objects(controllers(clusterUid="older"), image="gantry:1"))
    pod = manifests["StatefulSet", "gantry-controller"]["spec"]["template"]["spec"]
    assert {"name": "GANTRY_CLUSTER_UID", "value": "older"} in pod["containers"][0]["env"]


def test_the_address_is_known_before_it_is_expanded() -> None:
    order = list(env(statefulset()))
    assert order.index("POD_IP") < order.index("GANTRY_BIND")


def test_update_order_and_pod_order_are_ours() -> None:
    spec = statefulset()["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["podManagementPolicy"] == "Parallel"


def test_a_failover_is_no_new_revision() -> None:
    assert names.LABEL_ROLE not in str(statefulset())
    assert names.LABEL_ROLE in str(built()["Service", "orders-master"]["spec"]["selector"])
    assert names.LABEL_ROLE not in str(built()["Service", "orders"]["spec"]["selector"])


def test_a_new_pod_takes_connections_without_an_operator() -> None:
    wanted = {names.LABEL_TRAFFIC: names.TRAFFIC_ON}.items()
    assert wanted <= statefulset()["spec"]["template"]["metadata"]["labels"].items()
    assert wanted <= built()["Service", "orders"]["spec"]["selector"].items()
    for other in ("orders-master", "orders-broker"):
        assert names.LABEL_TRAFFIC not in str(built()["Service", other]["spec"]["selector"])
    assert names.LABEL_TRAFFIC not in str(statefulset()["spec"]["selector"])


def test_peers_find_each_other_before_they_are_ready() -> None:
    objects = built() | by_name(controller_objects(controllers(), image="gantry:1"))
    for name in ("orders-broker", "gantry-controller"):
        assert objects["Service", name]["spec"]["publishNotReadyAddresses"] is True
        assert objects["Service", name]["spec"]["clusterIP"] == "None"
    assert "publishNotReadyAddresses" not in objects["Service", "orders"]["spec"]


@pytest.mark.parametrize("kind", ["broker", "controller"])
def test_pods_obey_the_restricted_pod_security_standard(kind: str) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted."""
    objects = built() | by_name(controller_objects(controllers(), image="gantry:1"))
    name = {"broker": "orders-broker", "controller": "gantry-controller"}[kind]
    pod = objects["StatefulSet", name]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["containers"][0]["name"] == kind
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    allowed = {"configMap", "emptyDir", "secret", "persistentVolumeClaim"}
    assert {key for v in pod["volumes"] for key in v} - {"name"} <= allowed
    assert pod["automountServiceAccountToken"] is False


def test_probes_ask_what_the_processes_answer() -> None:
    for container, port in zip(containers(), (10913, 10920), strict=True):
        ready = container["readinessProbe"]
        assert ready["httpGet"] == {"path": "/readyz", "port": port, "scheme": "HTTP"}
        often = (ready["periodSeconds"], ready["timeoutSeconds"], ready["failureThreshold"])
        assert often == (1, 1, 1)
        assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
        assert container["startupProbe"]["httpGet"]["path"] == "/livez"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, {"requests": {"cpu": "250m", "memory": "256Mi"}}),
        ({"requests": {"cpu": "2"}}, {"requests": {"cpu": "2"}}),
        ({"requests": {}}, {"requests": {}}),
        (
            {"limits": {"memory": "200Mi"}},
            {"requests": {"cpu": "250m"}, "limits": {"memory": "200Mi"}},
        ),
    ],
    ids=["nothing is said", "something", "explicitly nothing", "a limit below the default"],
)
def test_brokers_reserve_what_they_need(wanted: dict[str, Any], expected: dict[str, Any]) -> None:
    broker, door = containers(brokers(resources=wanted))
    assert broker["resources"] == expected
    assert door["resources"] == {"requests": {"cpu": "100m", "memory": "96Mi"}}


def test_a_door_stands_beside_each_broker_and_knows_what_everybody_may_know() -> None:
    broker, door = containers()
    assert door["name"] == "door"
    assert door["image"] == broker["image"] == "gantry:1"
    assert door["command"] == ["gantry", "door"]
    assert "volumeMounts" not in door, "neither the quorum's key nor the log"
    given = {e["name"]: e.get("value", e.get("valueFrom")) for e in door["env"]}
    same = env(statefulset())
    assert given.items() <= same.items()
    assert given.keys() == {
        "GANTRY_NAME", "POD_IP", "GANTRY_BIND", "GANTRY_GROUP", "GANTRY_CLUSTER",
        "GANTRY_CONTROLLERS",
    }  # fmt: skip
    pod = {"GANTRY_NAME": "orders-broker-0", "GANTRY_BIND": "10.0.0.1", "POD_IP": "10.0.0.1"}
    settings = load_settings(DoorSettings, env=given | pod)
    ports = [port["containerPort"] for port in door["ports"]]
    assert [settings.port, settings.http_port] == ports
    assert len(settings.controllers) == 3
    own = brokers(clients={"door": {"resources": {"limits": {"memory": "1Gi"}}}})
    expected = {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}}
    assert containers(own)[1]["resources"] == expected


@pytest.mark.parametrize(
    ("clients", "image_knows", "expected"),
    [
        ({}, True, ["broker", "door"]),
        ({"door": {"enabled": False}}, True, ["broker"]),
        ({"route": "Master"}, True, ["broker"]),
        ({"route": "Pod"}, True, ["broker"]),
        ({}, False, ["broker"]),
    ],
)
def test_doors_are_where_the_route_leads_to_them(
    clients: dict[str, Any], image_knows: bool, expected: list[str]
) -> None:
    found = containers(brokers(clients=clients), door=image_knows)
    assert [one["name"] for one in found] == expected


def test_a_deleted_door_serves_until_no_node_leads_to_it() -> None:
    broker, door = containers()
    assert door["lifecycle"] == {"preStop": {"exec": {"command": ["sleep", "3"]}}}
    assert "lifecycle" not in broker, "a master that is to go hands over at once"


def test_the_service_leads_to_the_door_of_a_pod_that_has_one() -> None:
    """And to the broker of one that has none: so it never waits for the last pod to be replaced."""

    def leads_to(made: list[dict[str, Any]]) -> list[int]:
        (port,) = built()["Service", "orders"]["spec"]["ports"]
        assert port["port"] == 10911, "the address that clients know does not change"
        ports = [found for one in made for found in one["ports"]]
        return [p["containerPort"] for p in ports if p["name"] == port["targetPort"]]

    closed = brokers(clients={"door": {"enabled": False}})
    assert leads_to(containers()) == [10910]
    assert leads_to(containers(closed)) == leads_to(containers(door=False)) == [10911]
    assert built(closed)["Service", "orders"] == built()["Service", "orders"]
    before_doors = [{"ports": [{"name": "remoting", "containerPort": 10911}]}]
    assert leads_to(before_doors) == [10911]
    for straight in ("orders-master", "orders-broker"):
        ports = built()["Service", straight]["spec"]["ports"]
        assert ports[0]["targetPort"] == 10911


def test_storage() -> None:
    claimed = statefulset(
        brokers(storage={"size": "5Gi", "className": "fast", "whenDeleted": "Delete"})
    )
    (claim,) = claimed["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "data"
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    assert claimed["spec"]["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Delete",
        "whenScaled": "Retain",
    }
    lost = statefulset(brokers(replicas=1, storage={"type": "EmptyDir"}), replicas=1)
    assert "volumeClaimTemplates" not in lost["spec"]
    assert {"name": "data", "emptyDir": {"sizeLimit": "10Gi"}} in (
        lost["spec"]["template"]["spec"]["volumes"]
    )


def test_people_cannot_take_a_label_from_the_selector() -> None:
    stolen = {names.LABEL_INSTANCE: "other", names.LABEL_ROLE: "master", "team": "a"}
    manifest = statefulset(brokers(template={"metadata": {"labels": stolen}}))
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert labels["team"] == "a"
    assert names.LABEL_ROLE not in labels
    assert manifest["spec"]["selector"]["matchLabels"].items() <= labels.items()


def placement(**wish: Any) -> dict[str, Any]:
    spec = statefulset(brokers(template={"spec": wish}))["spec"]["template"]["spec"]
    return {key: spec[key] for key in ("affinity", "topologySpreadConstraints") if key in spec}


def test_replicas_prefer_different_nodes_and_zones() -> None:
    default = placement()["affinity"]["podAntiAffinity"]
    terms = default.pop("preferredDuringSchedulingIgnoredDuringExecution")
    assert not default  # nothing required: a cluster of one node can run a group
    weights = {term["podAffinityTerm"]["topologyKey"]: term["weight"] for term in terms}
    assert weights == {"kubernetes.io/hostname": 100, "topology.kubernetes.io/zone": 50}
    selected = statefulset()["spec"]["selector"]
    assert all(term["podAffinityTerm"]["labelSelector"] == selected for term in terms)


def test_default_spread_joins_other_affinity() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    nodes = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    wished = placement(affinity={"nodeAffinity": nodes})
    assert wished == {"affinity": placement()["affinity"] | {"nodeAffinity": nodes}}


OWN_SPREAD = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"affinity": {"podAntiAffinity": {}}}, {"affinity": {"podAntiAffinity": {}}}),
        (
            {"topologySpreadConstraints": [OWN_SPREAD]},
            {"topologySpreadConstraints": [OWN_SPREAD]},
        ),
        ({"topologySpreadConstraints": []}, {}),
    ],
    ids=["own anti-affinity", "own spread", "empty list"],
)
def test_own_spread_replaces_the_default(wish: dict[str, Any], expected: dict[str, Any]) -> None:
    assert placement(**wish) == expected


def test_placement_is_passed_on() -> None:
    everywhere = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {}}
    wish = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {
            "podAntiAffinity": {},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [everywhere]},
        },
        "priorityClassName": "high",
        "serviceAccountName": "mq",
        "imagePullSecrets": [{"name": "hub"}],
    }
    pod = statefulset(brokers(template={"spec": wish}))["spec"]["template"]["spec"]
    assert wish.items() <= pod.items()


def test_changed_settings_make_a_new_revision_and_the_file() -> None:
    plain, tuned = built(), built(brokers(config={"log_segment_bytes": "1024"}))
    assert (
        plain["StatefulSet", "orders-broker"]["spec"]["template"]["metadata"]["annotations"]
        != tuned["StatefulSet", "orders-broker"]["spec"]["template"]["metadata"]["annotations"]
    )
    text = tuned["ConfigMap", "orders-broker"]["data"]["gantry.toml"]
    assert tomllib.loads(text) == {"log_segment_bytes": "1024"}


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb\tc", "\x00\x7f\x1b", "ünï→\U0001f600", ""])
def test_any_text_survives_the_configuration_file(value: str) -> None:
    assert tomllib.loads(toml({"key": value})) == {"key": value}


def test_scaling_is_no_new_revision() -> None:
    three, two = statefulset(), statefulset(replicas=2)
    assert two["spec"]["replicas"] == 2
    assert three["spec"]["template"] == two["spec"]["template"]


def test_the_hash_tells_wishes_apart() -> None:
    hashes = {
        applied_hash(statefulset()),
        applied_hash(statefulset(replicas=2)),
        applied_hash(statefulset(image="gantry:2")),
        applied_hash(statefulset(brokers(template={"spec": {"priorityClassName": "high"}}))),
    }
    assert len(hashes) == 4
    assert None not in hashes


def test_building_is_deterministic_and_leaves_the_wish_alone() -> None:
    group = brokers(template={"metadata": {"labels": {"a": "b"}}}, config={"x": "1"})
    before = copy.deepcopy(group)
    assert built(group) == built(group)
    assert group == before


def test_the_controllers_of_the_group_and_the_file_agree() -> None:
    objects = by_name(controller_objects(controllers(), image="gantry:1"))
    data = objects["ConfigMap", "gantry-controller"]["data"]
    assert data["controllers"] == env(statefulset())["GANTRY_CONTROLLERS"]
    assert data["nameserver"] == "gantry-nameserver.mq.svc:9876"


def test_the_secret_is_owned_and_is_not_applied_again() -> None:
    secret = quorum_secret(controllers(), "gantry-admin", {"token": "dDBrZW4="})
    assert secret["metadata"]["name"] == "gantry-admin"
    assert secret["data"] == {"token": "dDBrZW4="}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "cg-uid"
    assert applied_hash(secret) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a-broker-0", 0), ("a-12", 12), ("a", None), ("a-x", None), ("a-²", None)],
)
def test_ordinals(name: str, expected: int | None) -> None:
    assert names.ordinal(name) == expected


def test_the_longest_names_leave_room_for_the_revision_label() -> None:
    revision = "-" + "0" * 10
    longest = names.broker_statefulset("a" * names.MAX_BROKER_GROUP_NAME)
    assert len(longest + revision) <= 63
    longest = names.controller_statefulset("a" * names.MAX_CONTROLLER_GROUP_NAME)
    assert len(longest + revision) <= 63


TIER = {
    "url": "s3://orders-log/tier",
    "endpoint": "https://minio.storage.svc:9000",
    "region": "eu-central-1",
    "credentialsSecret": {"name": "orders-tier"},
    "packBytes": 1048576,
    "lingerMs": 2000,
    "retryMaxMs": 900,
    "localBytes": 1073741824,
}


def test_a_group_without_a_tier_is_built_as_before() -> None:
    settings = env(statefulset())
    assert [name for name in settings if "TIER" in name] == []
    pod = statefulset()["spec"]["template"]["spec"]
    assert [v["name"] for v in pod["volumes"]] == ["config", "quorum-key"]


def test_environment_of_a_broker_with_a_tier() -> None:
    settings = env(statefulset(brokers(tier=TIER)))
    assert {name: text for name, text in settings.items() if "TIER" in name} == {
        "GANTRY_TIER_URL": "s3://orders-log/tier",
        "GANTRY_TIER_SHARD": "bg-uid",
        "GANTRY_TIER_ENDPOINT": "https://minio.storage.svc:9000",
        "GANTRY_TIER_REGION": "eu-central-1",
        "GANTRY_TIER_CREDENTIALS_DIR": "/etc/gantry/tier",
        "GANTRY_TIER_PACK_BYTES": "1048576",
        "GANTRY_TIER_LINGER_MS": "2000",
        "GANTRY_TIER_RETRY_MAX_MS": "900",
        "GANTRY_TIER_LOCAL_BYTES": "1073741824",
    }
    least = env(statefulset(brokers(tier={"url": "s3://b-1"})))
    assert {name: text for name, text in least.items() if "TIER" in name} == {
        "GANTRY_TIER_URL": "s3://b-1",
        "GANTRY_TIER_SHARD": "bg-uid",
        "GANTRY_TIER_PACK_BYTES": "67108864",
        "GANTRY_TIER_LINGER_MS": "30000",
        "GANTRY_TIER_RETRY_MAX_MS": "30000",
    }


def test_environment_of_a_broker_that_keeps_its_log_within_bounds() -> None:
    """What is not set is not told, so that an older image starts as before."""
    settings = env(statefulset())
    assert [name for name in settings if "RETENTION" in name] == []
    kept = {"hours": 0, "bytes": 1048576, "whenFull": "Refuse"}
    older = broker_objects(
        brokers(retention=kept), controllers(), image="gantry:1", replicas=3, live=""
    )
    settings = env(older[-1])
    given = {name: text for name, text in settings.items() if "RETENTION" in name}
    assert given == {
        "GANTRY_RETENTION_HOURS": "0",
        "GANTRY_RETENTION_BYTES": "1048576",
        "GANTRY_RETENTION_WHEN_FULL": "refuse",
    }
    # An image that applies them while running finds them in the file, and so does an older one.
    assert env(statefulset(brokers(retention=kept))) == env(statefulset())
    in_file = broker_settings(brokers(retention=kept), live=True)
    assert {f"GANTRY_{name.upper()}": text for name, text in in_file.items()} == given
    base = {"GANTRY_GROUP": "orders", "GANTRY_CONTROLLERS": "127.0.0.1:1"}
    assert load_settings(BrokerSettings, env={**base, **given}).kept == RetentionBounds(
        None, 1048576, gives_way=False
    )


def test_brokers_take_every_setting_of_a_tier() -> None:
    """The same names on both sides, and nothing that the broker would refuse."""
    taken = {"fromTier": {"shard": "old-uid", "formerOwner": "former-uid"}}
    settings = env(statefulset(brokers(tier=TIER, bootstrap=taken)))
    given = {name.removeprefix("GANTRY_").lower() for name in settings if "TIER" in name}
    known = {name for name in BrokerSettings.model_fields if name.startswith("tier_")}
    assert given == known <= set(RESERVED_SETTINGS)
    values = {name: settings[f"GANTRY_{name.upper()}"] for name in given}
    base = {"group": "orders", "controllers": ["127.0.0.1:1"]}
    assert BrokerSettings.model_validate(base | values).tier_pack_bytes == 1048576


def test_the_keys_of_a_tier_are_files_for_the_pods_group_and_need_not_be_there() -> None:
    manifest = statefulset(brokers(tier=TIER))
    pod = manifest["spec"]["template"]["spec"]
    (volume,) = [v for v in pod["volumes"] if v["name"] == "tier-keys"]
    assert volume["secret"] == {
        "secretName": "orders-tier",
        "items": [
            {"key": key, "path": key} for key in ("accessKeyId", "secretAccessKey", "sessionToken")
        ],
        "defaultMode": 0o440,
        "optional": True,
    }
    container = pod["containers"][0]
    mount = {"name": volume["name"], "mountPath": "/etc/gantry/tier", "readOnly": True}
    assert mount in container["volumeMounts"]
    assert "secretKeyRef" not in str(manifest)


def test_pods_with_a_tier_obey_the_restricted_pod_security_standard() -> None:
    pod = statefulset(brokers(tier=TIER))["spec"]["template"]["spec"]
    plain = statefulset()["spec"]["template"]["spec"]
    assert pod["securityContext"] == plain["securityContext"]
    container, before = pod["containers"][0], plain["containers"][0]
    assert container["securityContext"] == before["securityContext"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    writable = [m["name"] for m in container["volumeMounts"] if not m.get("readOnly")]
    assert writable == ["data"]
