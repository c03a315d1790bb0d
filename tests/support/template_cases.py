"""Templates that are refused, each with the first words of the rule that it breaks alone.

The same cases go to the CEL rules of the CRDs and to the operator's models.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

SCRATCH: Json = {"name": "scratch", "emptyDir": {}}
FULL: Json = {
    "schedulerName": "own",
    "runtimeClassName": "gvisor",
    "terminationGracePeriodSeconds": 60,
    "securityContext": {
        "runAsUser": 20000,
        "fsGroup": 0,
        "supplementalGroups": [5, 6],
        "seccompProfile": {"type": "Localhost", "localhostProfile": "mq.json"},
        "seLinuxOptions": {"level": "s0:c1,c2"},
    },
    "container": {
        "env": [
            {"name": "TZ", "value": "UTC"},
            {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "word"}}},
            {
                "name": "MODE",
                "valueFrom": {"configMapKeyRef": {"name": "c", "key": "m", "optional": True}},
            },
        ],
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/tmp"},
            {"name": "token", "mountPath": "/run/secrets/token", "readOnly": True},
        ],
        "startupProbe": {"failureThreshold": 3600},
        "livenessProbe": {"periodSeconds": 10},
    },
    "volumes": [
        SCRATCH,
        {"name": "files", "configMap": {"name": "c", "items": [{"key": "a", "path": "b/c"}]}},
        {"name": "keys", "secret": {"secretName": "s", "defaultMode": 288, "optional": True}},
        {"name": "shared", "persistentVolumeClaim": {"claimName": "p", "readOnly": True}},
        {
            "name": "token",
            "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "aws"}}]},
        },
        {
            "name": "vault",
            "csi": {
                "driver": "secrets-store.csi.k8s.io",
                "readOnly": True,
                "volumeAttributes": {"secretProviderClass": "mq"},
            },
        },
    ],
    "initContainers": [
        {
            "name": "prepare",
            "image": "busybox:1",
            "command": ["sh", "-c"],
            "args": ["echo ready > /scratch/x"],
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch", "subPath": "a/b"}],
        }
    ],
    "sidecars": [
        {
            "name": "agent",
            "image": "agent:1",
            "imagePullPolicy": "Always",
            "env": [{"name": "GANTRY_FREE", "value": "yes"}],
            "ports": [{"name": "agent-http", "containerPort": 9100}],
            "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}},
            "volumeMounts": [{"name": "files", "mountPath": "/etc/agent", "readOnly": True}],
            "securityContext": {"runAsUser": 7, "readOnlyRootFilesystem": False},
        }
    ],
}
"""Every field, in use."""


def main(**fields: Any) -> Json:
    return {"container": fields}


def env(*variables: Json) -> Json:
    return main(env=list(variables))


def beside(field: str = "sidecars", **fields: Any) -> Json:
    return {field: [{"name": "agent", "image": "agent:1"} | fields]}


def mounted(path: str) -> Json:
    return {"volumes": [SCRATCH]} | main(volumeMounts=[{"name": "scratch", "mountPath": path}])


def volume(**fields: Any) -> Json:
    return {"volumes": [{"name": "x"} | fields]}


FROM_FIELD: Json = {"fieldRef": {"fieldPath": "metadata.name"}}
REFUSED: list[tuple[str, Json]] = [
    *(
        ("template.spec.container.env must not name", env({"name": name, "value": "x"}))
        for name in ("GANTRY_NAME", "GANTRY_", "POD_IP", "PATH")
    ),
    *(
        ("template.spec.container.volumeMounts must keep away", mounted(path))
        for path in (
            *("/var/lib/gantry", "/var/lib/gantry/x", "/var/lib", "/var", "/etc", "/opt"),
            *("/etc/gantry", "/etc/gantry/config", "/opt/gantry", "/opt/gantry/bin"),
        )
    ),
    ("a variable takes value or", env({"name": "A", "value": "", "valueFrom": FROM_FIELD})),
    ("valueFrom takes one of", env({"name": "A", "valueFrom": {}})),
    (
        "valueFrom takes one of",
        env(
            {
                "name": "A",
                "valueFrom": FROM_FIELD | {"secretKeyRef": {"name": "s", "key": "k"}},
            }
        ),
    ),
    ("startupProbe must give", main(startupProbe={"periodSeconds": 1, "failureThreshold": 59})),
    ("livenessProbe must give", main(livenessProbe={"periodSeconds": 3, "failureThreshold": 3})),
    *(
        ("a volume must not be named", {"volumes": [{"name": name, "emptyDir": {}}]})
        for name in ("data", "config", "quorum-key", "admin", "tier-keys", "tls", "gantry-x")
    ),
    ("a volume is one of", volume()),
    ("a volume is one of", volume(emptyDir={}, secret={"secretName": "s"})),
    *(
        ("every volumeMounts entry", {"volumes": [SCRATCH]} | made)
        for mounts in ([{"name": "data", "mountPath": "/data"}],)
        for made in (
            main(volumeMounts=mounts),
            beside(volumeMounts=mounts),
            beside("initContainers", volumeMounts=mounts),
        )
    ),
    ("every volumeMounts entry", main(volumeMounts=[{"name": "no", "mountPath": "/no"}])),
    (
        "template.spec.sidecars and template.spec.initContainers",
        beside() | beside("initContainers"),
    ),
    *(
        ("a container must not be named", beside(field, name=name))
        for field in ("sidecars", "initContainers")
        for name in ("broker", "controller", "door", "front", "gantry-x")
    ),
    *(
        ("containerPort must not be", beside(ports=[{"containerPort": port, "protocol": "TCP"}]))
        for port in (9876, 9880, 10910, 10921, 11013, 11199)
    ),
    *(
        (
            "a sidecar's port must not",
            beside(ports=[{"name": name, "containerPort": 80, "protocol": "TCP"}]),
        )
        for name in ("remoting", "http", "door-http", "group-3", "at-outside")
    ),
    *(
        ("securityContext.anyUser leaves", {"securityContext": {"anyUser": True} | ids})
        for ids in ({"runAsUser": 5}, {"runAsGroup": 0}, {"fsGroup": 5})
    ),
    *(
        (
            "seccompProfile.localhostProfile",
            {"securityContext": {"anyUser": False, "seccompProfile": profile}},
        )
        for profile in (
            {"type": "Localhost"},
            {"type": "RuntimeDefault", "localhostProfile": "x"},
        )
    ),
]
"""As the API server has them, with the defaults that a rule reads."""
EDGES: list[Json] = [
    beside(ports=[{"containerPort": port, "protocol": "TCP"} for port in (9875, 9881)]),
    beside(ports=[{"containerPort": port, "protocol": "TCP"} for port in (10909, 11200)]),
    mounted("/var/log"),
    mounted("/var/lib/gantry2"),
    mounted("/etc/ssl/gantry"),
    env({"name": "GANTRY", "value": "x"}, {"name": "POD_IPS", "valueFrom": FROM_FIELD}),
    main(startupProbe={"periodSeconds": 1, "failureThreshold": 60}),
    main(livenessProbe={"periodSeconds": 5, "failureThreshold": 2}),
    {"securityContext": {"anyUser": True}},
    {"securityContext": {"anyUser": False, "runAsUser": 1, "runAsGroup": 0, "fsGroup": 0}},
    beside(name="brokers"),
    volume(name="data-2", emptyDir={}),
]
