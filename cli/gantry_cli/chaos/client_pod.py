"""The pod that runs the load on a real cluster, outside the group that is struck. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_operator import names

if TYPE_CHECKING:
    from collections.abc import Mapping

HTTP_PORT = 8090
USER_ID = 10001
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
    """A restricted pod that runs `gantry soak` on `topic` and keeps its history.

    Args:
        name: of the pod.
        namespace: of the group; the pod lives there too, for the admin token's Secret.
        topic: its own.
        image: Gantry's.
        controllers: name of the ControllerGroup.
        members: how many it has.
        group: the BrokerGroup that is watched.
        tier: `spec.tier` of the group, whose keys the pod gets; None: it has no tier.
    """
    statefulset = names.controller_statefulset(controllers)
    endpoints = ",".join(
        f"{names.pod_host(statefulset, n, namespace)}:{names.CONTROLLER_HTTP_PORT}"
        for n in range(members)
    )
    nameserver = f"{names.nameserver_service(controllers)}.{namespace}.svc:{names.NAMESERVER_PORT}"
    command = [
        *("gantry", "soak", topic, "--nameserver", nameserver),
        *("--lanes", str(LANES), "--interval-ms", str(INTERVAL_MS)),
        *("--controllers", endpoints, "--group", group),
        *("--admin-token-file", f"{names.ADMIN_DIR}/{names.TOKEN_KEY}"),
        *("--metadata", "--record", "--http", f"0.0.0.0:{HTTP_PORT}"),
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER_ID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "client",
                    "image": image,
                    "command": command,
                    "env": _keys(tier),
                    "volumeMounts": [
                        {"name": "admin", "mountPath": names.ADMIN_DIR, "readOnly": True}
                    ],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
            "volumes": [
                {"name": "admin", "secret": {"secretName": names.admin_secret(controllers)}}
            ],
        },
    }


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
