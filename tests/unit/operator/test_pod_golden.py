"""Pod templates, letter by letter: a group that asks for nothing gets what it always got.

A difference here restarts the pods of every group in the world after an upgrade of the operator.
What is new in a pod has to be asked for by a field of the resource, or wait for a new image
(`plan.broker`). Where a restart of all is meant, say so in the changelog and write the file anew:
`python tests/unit/operator/test_pod_golden.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gantry_operator.builders import broker_objects, controller_objects
from gantry_operator.builders.config import NEWEST_LIVE, NEWEST_LIVE_OF_FRONTS
from gantry_operator.builders.front import front_objects
from gantry_operator.models import BrokerGroup, ControllerGroup, FrontGroup

GOLDEN = Path(__file__).with_name("pod_templates.json")
IMAGE = "gantry:1"
Json = dict[str, Any]

BUCKET: Json = {"url": "s3://bucket/prefix", "region": "x", "credentialsSecret": {"name": "keys"}}
PLACED: Json = {
    "template": {
        "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
        "spec": {
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "only", "operator": "Exists"}],
            "priorityClassName": "high",
            "serviceAccountName": "mq",
            "imagePullSecrets": [{"name": "pull"}],
        },
    }
}
SETTINGS: Json = {
    "config": {"max_batch_messages": "7", "lock_wait_s": "1"},
    "retention": {"hours": 5, "whenFull": "Refuse"},
}


def _listening(**facts: Any) -> Json:
    """Three shards, with clients outside of the cluster."""
    listener = {"name": "outside", "type": "NodePort", "allowPlain": True} | facts
    return {"shards": 3, "clients": {"listeners": [listener]}}


SPECS: dict[str, tuple[type[BrokerGroup | ControllerGroup | FrontGroup], Json]] = {
    "broker": (BrokerGroup, {}),
    "broker placed": (BrokerGroup, PLACED),
    "broker without a door": (BrokerGroup, {"clients": {"route": "Pod"}}),
    "broker with shards": (BrokerGroup, {"shards": 3, "clients": {"route": "Pod"}}),
    "broker with shards and a listener": (BrokerGroup, _listening()),
    "broker with shards and a listener with TLS": (
        BrokerGroup,
        _listening(tls={"secretName": "public"}),
    ),
    "broker with a tier and TLS": (
        BrokerGroup,
        {
            "tier": BUCKET,
            "tls": {"secretName": "tls"},
            "memberTls": {"secretName": "members"},
            "pipeline": {"audit": {"schedule": "0 3 * * *"}},
        },
    ),
    "broker with settings, of an older image": (BrokerGroup, SETTINGS),
    "broker with settings": (BrokerGroup, SETTINGS),
    "broker of one on an empty directory": (
        BrokerGroup,
        {"replicas": 1, "storage": {"type": "EmptyDir"}},
    ),
    "controller": (ControllerGroup, {}),
    "controller placed": (ControllerGroup, PLACED),
    "front": (FrontGroup, {}),
    "front placed, with a tier": (FrontGroup, PLACED | {"tier": BUCKET}),
    "front, of an older image": (FrontGroup, {}),
    "front with all there is, of an older image": (
        FrontGroup,
        PLACED
        | {"tier": BUCKET, "tls": {"secretName": "tls"}, "memberTls": {"secretName": "members"}}
        | {"tracing": {"endpoint": "http://a:1", "ratio": "1"}, "connectionAgeSeconds": 0},
    ),
}


def templates(name: str) -> Json:
    """The pod templates of all objects of a group, by kind."""
    kind, spec = SPECS[name]
    body = {"metadata": {"name": "a", "namespace": "mq", "uid": "u"}, "spec": spec}
    quorum = ControllerGroup.parse({"metadata": {"name": "gantry", "namespace": "mq"}})
    group = kind.parse(body)
    if isinstance(group, ControllerGroup):
        objects = controller_objects(group, image=IMAGE)
    elif isinstance(group, FrontGroup):
        objects = front_objects(
            group,
            quorum,
            image=IMAGE,
            live="" if "older image" in name else NEWEST_LIVE_OF_FRONTS,
        )
    else:
        objects = broker_objects(
            group,
            quorum,
            image=IMAGE,
            replicas=3,
            shards=spec.get("shards"),
            fronts=True,
            live="" if "older image" in name else NEWEST_LIVE,
        )
    found = {}
    for made in objects:
        inner = made.get("spec", {}).get("jobTemplate", made).get("spec", {})
        if "template" in inner:
            found[made["kind"]] = inner["template"]
    return found


@pytest.mark.parametrize("name", SPECS)
def test_pods_are_what_they_always_were(name: str) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert golden.keys() == SPECS.keys()
    assert json.loads(json.dumps(templates(name))) == golden[name]


if __name__ == "__main__":
    everything = {name: templates(name) for name in SPECS}
    GOLDEN.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
