"""The pod that runs `gantry_lab soak` on a cluster: outside the group, and restricted. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_operator import names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HTTP_PORT = 8090
REQUESTS = {"cpu": "200m", "memory": "128Mi"}
"""About as much as a broker's. Where a node is short of processors a client without it starves, and
the gaps that it sees are its own."""
USER_ID = 10001


def soak_pod(
    name: str,
    *,
    namespace: str,
    topic: str,
    image: str,
    controllers: str,
    members: int,
    group: str,
    labels: Mapping[str, str],
    options: Sequence[str] = (),
    variables: Sequence[Mapping[str, Any]] = (),
    node: str | None = None,
) -> dict[str, Any]:
    """A restricted pod that puts load on `topic` and watches who is master.

    Args:
        name: of the pod.
        namespace: of the group; the pod lives there too, for the admin token's Secret.
        topic: its own.
        image: the lab's, see `e2e/images/lab`.
        controllers: name of the ControllerGroup.
        members: how many it has.
        group: the BrokerGroup that is watched.
        labels: of the pod.
        options: more of `gantry_lab soak`.
        variables: its environment.
        node: where it has to run; None lets the scheduler decide.
    """
    statefulset = names.controller_statefulset(controllers)
    endpoints = ",".join(
        f"{names.pod_host(statefulset, n, namespace)}:{names.CONTROLLER_HTTP_PORT}"
        for n in range(members)
    )
    nameserver = f"{names.nameserver_service(controllers)}.{namespace}.svc:{names.NAMESERVER_PORT}"
    command = [
        *("python", "-m", "gantry_lab", "soak", topic, "--nameserver", nameserver),
        *("--controllers", endpoints, "--group", group),
        *("--admin-token-file", f"{names.ADMIN_DIR}/{names.TOKEN_KEY}"),
        *("--metadata", "--http", f"0.0.0.0:{HTTP_PORT}", *options),
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels) | {names.LABEL_TOOLS: "true"},
        },
        "spec": {
            **({} if node is None else {"nodeName": node}),
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
                    "resources": {"requests": REQUESTS},
                    "env": [dict(variable) for variable in variables],
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
