"""Objects of a FrontGroup, and what its existence adds to the brokers and controllers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gantry_broker.front import FrontSettings
from gantry_operator import names
from gantry_operator.builders import broker_objects, controller_objects, front_objects
from gantry_operator.builders.config import NEWEST_LIVE_OF_FRONTS
from gantry_operator.builders.front import first_client_port
from gantry_operator.models import InvalidSpecError
from gantry_protocol.process.config import load_settings
from unit.operator.world import brokers, controllers, fronts

Objects = dict[tuple[str, str], dict[str, Any]]


def by_name(manifests: list[dict[str, Any]]) -> Objects:
    return {(m["kind"], m["metadata"]["name"]): m for m in manifests}


def built(**spec: Any) -> Objects:
    return by_name(front_objects(fronts(**spec), controllers(), image="gantry:1"))


def deployment(**spec: Any) -> dict[str, Any]:
    return built(**spec)["Deployment", "clients-front"]


def container(**spec: Any) -> dict[str, Any]:
    (found,) = deployment(**spec)["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def test_a_front_group_owns() -> None:
    kinds = ["ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"]
    assert sorted(built()) == [(kind, "clients-front") for kind in kinds]


def test_everything_goes_with_its_owner() -> None:
    for manifest in built(autoscaling={"enabled": True}).values():
        (reference,) = manifest["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["uid"]) == ("FrontGroup", "fg-uid")
        assert manifest["metadata"]["annotations"][names.ANNOTATION_APPLIED]
        assert manifest["metadata"]["labels"][names.LABEL_COMPONENT] == "front"


def test_a_new_front_is_ready_before_an_old_one_ends() -> None:
    rolling = {"maxSurge": 1, "maxUnavailable": 0}
    strategy = deployment()["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": rolling}
    assert container()["readinessProbe"]["httpGet"] == {
        "path": "/readyz",
        "port": 10921,
        "scheme": "HTTP",
    }


def test_a_deleted_front_serves_until_no_node_leads_clients_to_it() -> None:
    hook = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert hook == ["sleep", "3"]
    pod = deployment()["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > int(hook[1]) + 10, "sends take up to 3 s each"


def test_environment_of_a_front() -> None:
    environment = {e["name"]: e.get("value", e.get("valueFrom")) for e in container()["env"]}
    assert environment == {
        "GANTRY_NAME": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
        "POD_IP": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}},
        "GANTRY_BIND": "$(POD_IP)",
        "GANTRY_CONFIG": "/etc/gantry/config/gantry.toml",
        "GANTRY_CLUSTER": "gantry",
        "GANTRY_CONTROLLERS": (
            "gantry-controller-0.gantry-controller.mq.svc:9878,"
            "gantry-controller-1.gantry-controller.mq.svc:9878,"
            "gantry-controller-2.gantry-controller.mq.svc:9878"
        ),
        "GANTRY_FIRST_PORT": "10950",
        "GANTRY_PORTS": "16",
        "GANTRY_HTTP_PORT": "10921",
        "GANTRY_STORE_PORT": "10914",
        "GANTRY_QUORUM_KEY_FILE": "/etc/gantry/quorum/key",
    }
    assert container()["command"] == ["gantry", "front"]


NEWEST, OLDER = NEWEST_LIVE_OF_FRONTS, ""
"""Words of images: one that reads its file again, and one that has none."""


def told(directory: Path, live: str, **spec: Any) -> FrontSettings:
    """The settings of a front by its pod's variables and its file, if it has one."""
    made = by_name(front_objects(fronts(**spec), controllers(), image="gantry:1", live=live))
    (found,) = made["Deployment", "clients-front"]["spec"]["template"]["spec"]["containers"]
    given = {e["name"]: e["value"] for e in found["env"] if "$" not in e.get("value", "$")}
    place = given.pop("GANTRY_CONFIG", None)
    assert (place is None) is (not live)
    file = None
    if place is not None:
        mounts = [(mount["mountPath"], mount["name"]) for mount in found["volumeMounts"]]
        assert (str(Path(place).parent), "config") in mounts
        file = directory / Path(place).name
        file.write_text(made["ConfigMap", "clients-front"]["data"][file.name])
    return load_settings(FrontSettings, env=given, toml_path=file, table="front")


@pytest.mark.parametrize("live", [NEWEST, OLDER])
@pytest.mark.parametrize("age_s", [0, 30, 86_400])
def test_a_front_is_told_how_old_a_connection_may_get(
    age_s: int, live: str, tmp_path: Path
) -> None:
    assert told(tmp_path, live, connectionAgeSeconds=age_s).connection_age_s == age_s


@pytest.mark.parametrize("live", [NEWEST, OLDER])
def test_a_front_is_told_where_its_spans_go(live: str, tmp_path: Path) -> None:
    wish = {"endpoint": "http://collector.observability.svc:4318", "ratio": "0.5"}
    found = told(tmp_path, live, tracing=wish)
    assert (found.tracing_endpoint, found.tracing_ratio) == (wish["endpoint"], 0.5)
    assert told(tmp_path, live).tracing_endpoint is None


@pytest.mark.parametrize(
    ("tracing", "place"),
    [
        ({}, "tracing.endpoint"),
        ({"endpoint": "collector:4318"}, "tracing.endpoint"),
        ({"endpoint": "http://a:1", "ratio": "2"}, "tracing.ratio"),
        ({"endpoint": "http://a:1", "ratio": "half"}, "tracing.ratio"),
    ],
)
def test_tracing_that_cannot_be_is_refused(tracing: dict[str, str], place: str) -> None:
    with pytest.raises(InvalidSpecError, match=place):
        fronts(tracing=tracing)


@pytest.mark.parametrize("age_s", [-1, 86_401])
def test_an_age_out_of_range_is_refused(age_s: int) -> None:
    with pytest.raises(InvalidSpecError, match=r"connectionAgeSeconds"):
        fronts(connectionAgeSeconds=age_s)


def test_a_front_holds_the_key_and_its_settings_and_nothing_else() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    (config, volume) = pod["volumes"]
    assert config == {"name": "config", "configMap": {"name": "clients-front"}}
    assert volume["secret"] == {"secretName": "gantry-quorum-key", "defaultMode": 0o440}
    (config, mount) = container()["volumeMounts"]
    assert config == {"name": "config", "mountPath": "/etc/gantry/config", "readOnly": True}
    assert mount == {"name": "quorum-key", "mountPath": "/etc/gantry/quorum", "readOnly": True}
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container()["securityContext"]["readOnlyRootFilesystem"] is True


TIER = {
    "url": "s3://orders-log/tier",
    "endpoint": "https://minio.storage.svc:9000",
    "region": "eu-central-1",
    "credentialsSecret": {"name": "orders-tier"},
}


def test_a_front_is_told_where_tiers_are() -> None:
    container = deployment(tier=TIER)["spec"]["template"]["spec"]["containers"][0]
    given = {e["name"]: e["value"] for e in container["env"] if "TIER" in e["name"]}
    assert given == {
        "GANTRY_TIER_URL": "s3://orders-log/tier",
        "GANTRY_TIER_ENDPOINT": "https://minio.storage.svc:9000",
        "GANTRY_TIER_REGION": "eu-central-1",
        "GANTRY_TIER_CREDENTIALS_DIR": "/etc/gantry/tier",
    }
    base = {"GANTRY_CONTROLLERS": "127.0.0.1:1"}
    told = load_settings(FrontSettings, env={**base, **given})
    assert told.tier_credentials_dir == Path("/etc/gantry/tier")
    pod = deployment(tier=TIER)["spec"]["template"]["spec"]
    (volume,) = [v for v in pod["volumes"] if v["name"] == "tier-keys"]
    assert volume["secret"]["secretName"] == "orders-tier"
    assert volume["secret"]["optional"] is True
    mount = {"name": "tier-keys", "mountPath": "/etc/gantry/tier", "readOnly": True}
    assert mount in container["volumeMounts"]
    assert container["resources"]["requests"]["memory"] == "512Mi"


def test_without_keys_there_is_no_secret() -> None:
    pod = deployment(tier={"url": "s3://b-1"})["spec"]["template"]["spec"]
    assert [volume["name"] for volume in pod["volumes"]] == ["config", "quorum-key"]
    given = [e["name"] for e in pod["containers"][0]["env"] if "TIER" in e["name"]]
    assert given == ["GANTRY_TIER_URL"]


@pytest.mark.parametrize(
    ("tier", "sentence"),
    [
        ({"url": "s3://key:secret@b-1"}, "tier.url must be s3://BUCKET"),
        ({"url": "s3://b-1", "endpoint": "minio:9000"}, "tier.endpoint must be http://HOST:PORT"),
        ({"url": "file:///tier", "region": "x"}, "are for s3:// only: remove them"),
    ],
)
def test_places_that_cannot_be_meant(tier: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidSpecError, match=sentence):
        fronts(tier=tier)


@pytest.mark.parametrize("ports", [1, 2, 64])
def test_each_broker_group_has_a_port_at_pod_and_service(ports: int) -> None:
    wanted = [(f"group-{n}", 10950 + n) for n in range(ports)]
    service = built(ports=ports)["Service", "clients-front"]["spec"]
    assert [(port["name"], port["port"]) for port in service["ports"]] == wanted
    assert [port["targetPort"] for port in service["ports"]] == [port for _, port in wanted]
    at_pod = [(port["name"], port["containerPort"]) for port in container(ports=ports)["ports"]]
    assert at_pod == [*wanted, ("http", 10921)]
    (clients, _) = built(ports=ports)["NetworkPolicy", "clients-front"]["spec"]["ingress"]
    assert clients["ports"] == [{"protocol": "TCP", "port": 10950, "endPort": 10949 + ports}]


def test_node_ports_follow_the_first() -> None:
    wish = {"type": "NodePort", "advertisedAddress": "mq.example.com", "firstNodePort": 31000}
    service = built(ports=2, service=wish)["Service", "clients-front"]["spec"]
    assert service["type"] == "NodePort"
    assert [port["nodePort"] for port in service["ports"]] == [31000, 31001]
    assert first_client_port(fronts(ports=2, service=wish)) == 31000
    assert first_client_port(fronts()) == 10950


def test_annotations_of_a_load_balancer() -> None:
    wish = {"type": "LoadBalancer", "annotations": {"cloud/internal": "true"}}
    service = built(service=wish)["Service", "clients-front"]
    assert service["metadata"]["annotations"]["cloud/internal"] == "true"
    assert "nodePort" not in service["spec"]["ports"][0]


def test_replicas_are_the_autoscalers_where_there_is_one() -> None:
    assert deployment(replicas=3)["spec"]["replicas"] == 3
    assert ("HorizontalPodAutoscaler", "clients-front") not in built()
    wish = {"enabled": True, "minReplicas": 3, "maxReplicas": 7}
    objects = built(replicas=3, autoscaling=wish)
    assert "replicas" not in objects["Deployment", "clients-front"]["spec"]
    scaler = objects["HorizontalPodAutoscaler", "clients-front"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 7)
    assert scaler["scaleTargetRef"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "clients-front",
    }
    (metric,) = scaler["metrics"]
    assert metric["resource"] == {
        "name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 70},
    }


def test_metrics_and_clients_only_from_whom_the_policy_names() -> None:
    peers = {"clientsFrom": [{"podSelector": {"matchLabels": {"app": "shop"}}}]}
    rules = built(networkPolicy=peers)["NetworkPolicy", "clients-front"]["spec"]["ingress"]
    assert rules[0]["from"] == [{"podSelector": {"matchLabels": {"app": "shop"}}}]
    assert "from" not in rules[1]
    assert ("NetworkPolicy", "clients-front") not in built(networkPolicy={"enabled": False})


def of_brokers(**facts: Any) -> Objects:
    return by_name(broker_objects(brokers(), controllers(), image="gantry:1", replicas=3, **facts))


def store_port(objects: Objects) -> str | None:
    spec = objects["StatefulSet", "orders-broker"]["spec"]["template"]["spec"]
    found = {e["name"]: e.get("value") for e in spec["containers"][0]["env"]}
    return found.get("GANTRY_STORE_PORT")


def test_brokers_have_a_store_port_only_where_there_are_fronts_and_the_image_knows_them() -> None:
    assert store_port(of_brokers()) is None
    assert store_port(of_brokers(fronts=True)) == "10914"
    assert store_port(of_brokers(fronts=True, knows_fronts=False)) is None


def test_a_cluster_without_fronts_changes_nothing_in_its_pods() -> None:
    name = "StatefulSet", "orders-broker"
    with_, without = of_brokers(knows_fronts=True)[name], of_brokers(knows_fronts=False)[name]
    assert with_["spec"] == without["spec"]


def test_fronts_reach_the_store_and_the_controllers_and_nobody_else_gets_in_there() -> None:
    fronts_ = {"podSelector": {"matchLabels": {names.LABEL_NAME: "gantry"}}}
    fronts_["podSelector"]["matchLabels"][names.LABEL_COMPONENT] = "front"

    def peers(objects: Objects, name: str, port: int) -> Any:
        rules = objects["NetworkPolicy", name]["spec"]["ingress"]
        return [r.get("from") for r in rules for p in r["ports"] if p["port"] == port]

    assert peers(of_brokers(), "orders-broker", 10914) == []
    assert peers(of_brokers(fronts=True), "orders-broker", 10914) == [[fronts_]]
    quorum = by_name(controller_objects(controllers(), image="gantry:1"))
    assert fronts_ in peers(quorum, "gantry-controller", 9878)[0]
