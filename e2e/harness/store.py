"""The object store of the tests in a cluster: one pod with moto, in memory, and its Service."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

from harness.node import on_node
from harness.shell import CommandError
from harness.waiting import wait_until

if TYPE_CHECKING:
    from harness.kube import Kube, Object

NAME = "store"
KEYS = "store-keys"
PORT = 9000
IMAGE = os.environ.get("GANTRY_E2E_STORE_IMAGE", "gantry-test/store:moto")
START_PATIENCE_S = 90.0
USER_ID = 10001
# Moto takes any signature, and only signed requests; what looks like a form it reads as one.
HEADERS = {"Authorization": "AWS test:test", "Content-Type": "application/octet-stream"}
FLIP = f"""
import sys
from urllib.request import Request, urlopen
url, at = "http://127.0.0.1:{PORT}/" + sys.argv[1], int(sys.argv[2])
headers = {HEADERS}
data = bytearray(urlopen(Request(url, headers=headers)).read())
data[at] ^= 0xFF
urlopen(Request(url, bytes(data), headers, method="PUT"))
"""


def start(kube: Kube, bucket: str) -> dict[str, Any]:
    """Run the store with a bucket in it; what a group's `spec.tier` needs to reach it.

    A store that runs already is kept, with everything in it.
    """
    if kube.get("pod", NAME) is None:
        kube.apply(store_pod(kube.namespace), store_service(kube.namespace), keys(kube.namespace))
    wait_until(f"bucket {bucket} is there", START_PATIENCE_S, lambda: _make_bucket(kube, bucket))
    return {
        "url": f"s3://{bucket}/gantry",
        "endpoint": f"http://{NAME}.{kube.namespace}.svc:{PORT}",
        "credentialsSecret": {"name": KEYS},
    }


def expose(kube: Kube) -> str:
    """The store's endpoint for this machine: a port of the node that it runs on."""
    service = store_service(kube.namespace, f"{NAME}-outside")
    service["spec"]["type"] = "NodePort"
    kube.apply(service)
    found, pod = kube.get("service", f"{NAME}-outside"), kube.get("pod", NAME)
    assert found is not None
    assert pod is not None
    host, port = pod["status"]["hostIP"], found["spec"]["ports"][0]["nodePort"]
    wait_until("the store can be reached from outside", START_PATIENCE_S, lambda: _open(host, port))
    return f"http://{host}:{port}"


def flip(kube: Kube, url: str, key: str, at: int) -> None:
    """Turn every bit of one byte of an object around; once more undoes it.

    Args:
        kube: the namespace of the store.
        url: as `start` gave it.
        key: of the object, below `url`.
        at: the byte, from 0.
    """
    path = f"{url.removeprefix('s3://')}/{key}"
    kube.ctl("exec", NAME, "--", "/opt/moto/bin/python", "-c", FLIP, path, str(at))


def store_pod(namespace: str) -> Object:
    """A restricted pod; what is in it ends with it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": namespace, "labels": {"app": NAME}},
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
                    "name": "store",
                    "image": IMAGE,
                    "env": [
                        {"name": "AWS_EC2_METADATA_DISABLED", "value": "true"},
                        # Otherwise the first part of the Service's name is taken for a bucket.
                        {"name": "S3_IGNORE_SUBDOMAIN_BUCKETNAME", "value": "true"},
                    ],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


def store_service(namespace: str, name: str = NAME) -> Object:
    """The address of the store."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"app": NAME}, "ports": [{"port": PORT}]},
    }


def keys(namespace: str) -> Object:
    """Keys that the store takes, as it takes any; a request without is refused."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": KEYS, "namespace": namespace},
        "stringData": {"accessKeyId": "test", "secretAccessKey": "test"},
    }


def _open(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _make_bucket(kube: Kube, bucket: str) -> bool:
    pod = kube.get("pod", NAME)
    address = ((pod or {}).get("status") or {}).get("podIP")
    if not address:
        return False
    url = f"http://{address}:{PORT}/{bucket}"
    try:  # making a bucket that is there is answered with 200 or 409
        made = ("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-m", "5", "-X", "PUT", url)
        return on_node(pod["spec"]["nodeName"], *made).strip() in ("200", "409")  # type: ignore[index]
    except CommandError:
        return False
