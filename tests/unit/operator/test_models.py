"""Reading resources: tolerant of the unknown, strict about the known, clear about what to do."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_broker.tier.stores import open_store
from gantry_operator.models import BrokerGroup, ControllerGroup, FrontGroup, InvalidSpecError


def broker_group(name: str = "orders", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "generation": 1}, "spec": spec}


def test_an_empty_spec_has_every_default() -> None:
    spec = BrokerGroup.parse(broker_group()).spec
    assert (spec.controller_ref.name, spec.replicas, spec.min_in_sync) == ("gantry", 3, 2)
    assert (spec.storage.type, spec.storage.size) == ("PersistentVolumeClaim", "10Gi")
    assert (spec.clients.route, spec.paused) == ("Group", False)


def test_fields_of_a_newer_version_are_ignored_at_every_level() -> None:
    body = broker_group(quotas={"mode": "Enabled"}, storage={"size": "1Gi", "iops": 9})
    body["status"] = {"observedGeneration": 1, "quotas": {}, "conditions": []}
    assert BrokerGroup.parse(body).spec.storage.size == "1Gi"


@pytest.mark.parametrize(
    ("replicas", "minimum", "effective"),
    [(1, None, 1), (2, None, 2), (3, None, 2), (9, None, 2), (3, 3, 3), (3, 1, 1)],
)
def test_effective_minimum(replicas: int, minimum: int | None, effective: int) -> None:
    body = broker_group(replicas=replicas, replication={"minInSyncReplicas": minimum})
    assert BrokerGroup.parse(body).spec.min_in_sync == effective


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(
            broker_group(replicas=3, replication={"minInSyncReplicas": 4}),
            "lower it or raise replicas",
            id="minimum-above-replicas",
        ),
        pytest.param(
            broker_group(replicas=2, storage={"type": "EmptyDir"}),
            "set replicas to 1 or storage.type to PersistentVolumeClaim",
            id="emptydir-with-two",
        ),
        pytest.param(
            broker_group(config={"data_dir": "/x"}), "remove admin_token_file", id="reserved"
        ),
        pytest.param(
            broker_group(config={"tier_url": "s3://b-1"}),
            ", tier_..., tls_...",
            id="reserved-for-the-tier",
        ),
        pytest.param(
            broker_group(tier={"url": "s3://b-1"}, retention={"hours": 1}),
            "set tier.localBytes for what stays on the volumes",
            id="retention-with-a-tier",
        ),
        pytest.param(broker_group(retention={"hours": -1}), "retention.hours: ", id="hours"),
        pytest.param(broker_group(retention={"bytes": 1}), "retention.bytes: ", id="bytes"),
        pytest.param(
            broker_group(config={"retention_hours": "1"}), "retention_...", id="has-a-field"
        ),
        pytest.param(broker_group(config={"Log-Size": "1"}), "rename the keys", id="setting-name"),
        pytest.param(broker_group(name="9lives"), "choose another name", id="name"),
        pytest.param(broker_group(name="a" * 46), "at most 45 characters", id="long-name"),
        pytest.param(broker_group(replicas=12), "spec.replicas: ", id="range"),
        pytest.param(broker_group(storage={"size": "ten"}), "spec.storage.size: ", id="quantity"),
        pytest.param(
            broker_group(clients={"route": "Any"}), "'Group', 'Master' or 'Pod'", id="enum"
        ),
    ],
)
def test_an_invalid_broker_group_says_what_to_change(body: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        BrokerGroup.parse(body)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("replicas", [0, 2, 4, 6])
def test_a_quorum_has_one_three_or_five_members(replicas: int) -> None:
    body = {"metadata": {"name": "gantry"}, "spec": {"replicas": replicas}}
    with pytest.raises(InvalidSpecError, match="1, 3 or 5"):
        ControllerGroup.parse(body)
    body["spec"] = {"replicas": 5}
    assert ControllerGroup.parse(body).spec.replicas == 5


def test_what_is_read_is_what_is_written() -> None:
    body = broker_group(replicas=2, switchover={"id": "a", "to": 1})
    written = BrokerGroup.parse(body).spec.to_object()
    assert written["controllerRef"] == {"name": "gantry"}
    assert written["switchover"] == {"id": "a", "to": 1}
    assert "minInSyncReplicas" not in written["replication"]


SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCY"


@pytest.mark.parametrize(
    "url",
    [
        "s3://orders-log",
        "s3://orders-log/",
        "s3://a.b-3/tier/of_orders/v1.2",
        "file:///var/tier",
    ],
)
def test_places_of_a_tier(url: str) -> None:
    """What is taken here opens there: the broker reads the same URL."""
    tier = BrokerGroup.parse(broker_group(tier={"url": url})).spec.tier
    assert tier is not None
    assert (tier.pack_bytes, tier.linger_ms, tier.local_bytes) == (67108864, 30000, None)
    if not tier.is_directory:
        assert open_store(url).url == url.rstrip("/")


@pytest.mark.parametrize(
    ("tier", "words"),
    [
        pytest.param({}, "spec.tier.url", id="no-url"),
        pytest.param({"url": "gs://orders"}, "tier.url must be s3://BUCKET", id="scheme"),
        pytest.param({"url": "s3://Orders"}, "tier.url must be s3://BUCKET", id="bucket"),
        pytest.param({"url": "s3://orders//x"}, "tier.url must be s3://BUCKET", id="folder"),
        pytest.param({"url": "s3://orders?region=x"}, "neither keys nor options", id="options"),
        pytest.param({"url": f"s3://AKIA:{SECRET}@orders"}, "neither keys nor options", id="keys"),
        pytest.param({"url": "s3://orders\n"}, "tier.url must be", id="newline"),
        pytest.param({"url": "file://host/x"}, "tier.url must be", id="host"),
        pytest.param(
            {"url": "s3://orders", "endpoint": "minio:9000"}, "tier.endpoint must be", id="endpoint"
        ),
        pytest.param(
            {"url": "s3://orders", "endpoint": f"http://a:{SECRET}@minio"},
            "tier.endpoint must be",
            id="keys-in-endpoint",
        ),
        pytest.param(
            {"url": "file:///tier", "region": "eu"},
            "are for s3:// only",
            id="directory-in-a-region",
        ),
        pytest.param(
            {"url": "file:///tier", "credentialsSecret": {"name": "x"}},
            "are for s3:// only",
            id="keys-of-a-directory",
        ),
        pytest.param({"url": "s3://orders", "packBytes": 1}, "spec.tier.packBytes", id="pack"),
        pytest.param({"url": "s3://orders", "lingerMs": 5}, "spec.tier.lingerMs", id="linger"),
        pytest.param({"url": "s3://orders", "retryMaxMs": 5}, "spec.tier.retryMaxMs", id="retry"),
        pytest.param({"url": "s3://orders", "localBytes": 5}, "spec.tier.localBytes", id="local"),
        pytest.param(
            {"url": "s3://orders", "credentialsSecret": {}},
            "spec.tier.credentialsSecret.name",
            id="secret-without-name",
        ),
    ],
)
def test_an_invalid_tier_says_what_to_change(tier: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        BrokerGroup.parse(broker_group(tier=tier))
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


def front_group(name: str = "clients", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "generation": 1}, "spec": spec}


def test_an_empty_spec_of_fronts_has_every_default() -> None:
    spec = FrontGroup.parse(front_group()).spec
    assert (spec.controller_ref.name, spec.replicas, spec.ports) == ("gantry", 2, 16)
    assert (spec.service.type, spec.autoscaling.enabled, spec.paused) == ("ClusterIP", False, False)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"service": {"type": "NodePort"}}, "needs service.advertisedAddress"),
        (
            {
                "ports": 64,
                "service": {
                    "type": "NodePort",
                    "advertisedAddress": "a",
                    "firstNodePort": 32705,
                },
            },
            "must not go beyond 32767",
        ),
        ({"autoscaling": {"minReplicas": 11}}, "lower it or raise maxReplicas"),
        (
            {"autoscaling": {"enabled": True}, "resources": {"requests": {"memory": "1Gi"}}},
            "set resources.requests.cpu",
        ),
        ({"service": {"advertisedAddress": "http://mq"}}, "service.advertisedAddress"),
        ({"service": {"advertisedAddress": "mq:10950 x"}}, "service.advertisedAddress"),
        ({"replicas": 0}, "replicas"),
        ({"ports": 65}, "ports"),
    ],
)
def test_what_no_fronts_can_be_made_of_is_refused(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        FrontGroup.parse(front_group(**spec))


@pytest.mark.parametrize(
    "resources", [{}, {"requests": {"cpu": 1}}, {"requests": {}, "limits": {"cpu": 1}}]
)
def test_fronts_scale_by_cpu_where_some_is_requested(resources: dict[str, Any]) -> None:
    spec = {"autoscaling": {"enabled": True}, "resources": resources}
    assert FrontGroup.parse(front_group(**spec)).spec.autoscaling.enabled
