"""The pod that runs the load on a real cluster, outside the group that is struck. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_lab.soak.pod import soak_pod

if TYPE_CHECKING:
    from collections.abc import Mapping

LABELS = {"app.kubernetes.io/name": "gantry-chaos", "app": "gantry-chaos"}
LANES = 4
INTERVAL_MS = 20
KEYS = {  # keys of the tier's Secret, and the variables that tools read them from
    "accessKeyId": "AWS_ACCESS_KEY_ID",
    "secretAccessKey": "AWS_SECRET_ACCESS_KEY",
    "sessionToken": "AWS_SESSION_TOKEN",
}


def client_pod(
    name: str,
    *,
    namespace: str,
    topic: str,
    image: str,
    controllers: str,
    members: int,
    group: str,
    tier: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """A `soak_pod` that keeps its history, and has the keys of `tier`, the group's `spec.tier`."""
    return soak_pod(
        name,
        namespace=namespace,
        topic=topic,
        image=image,
        controllers=controllers,
        members=members,
        group=group,
        labels=LABELS,
        options=("--record", "--lanes", str(LANES), "--interval-ms", str(INTERVAL_MS)),
        variables=_keys(tier),
    )


def _keys(tier: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    secret = ((tier or {}).get("credentialsSecret") or {}).get("name")
    if not secret:
        return []
    return [
        {
            "name": variable,
            "valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": True}},
        }
        for key, variable in KEYS.items()
    ]
