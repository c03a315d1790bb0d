"""Executors as pods: what a driver in a pod tells Spark, and what runs in an executor's pod.

The driver is the command itself, in client mode: it makes the executors' pods and owns them, so
they go with it, however it ends. They run the driver's own image under the restricted pod security
standard. Spark's images bring a shell script that starts an executor; PySpark's wheel has none, so
``executor_command`` says the same.

What it refuses: a driver that is no pod (executors could not reach it), and one that was not told
its image. Keys of a bucket come from a Secret that is mounted into executors' pods as files; they
are in no setting of Spark, in no pod's description and in no environment.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from gantry_protocol.errors import ConfigError

from gantry_pipeline.source.objects import CREDENTIALS_DIR

if TYPE_CHECKING:
    from collections.abc import Mapping

MASTER = "k8s://"
BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
CONTAINER = "executor"
USER_ID = 10001  # of the image's user
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
EXECUTORS_MAX = 100
MEMORY_MIB = 1024
# Python's workers live outside of the heap: 0.3 GiB each, and what Arrow holds of a pack.
OVERHEAD_MIB = 1024
CPU_REQUEST = "250m"
POD_FACTS = {  # variable of the driver's pod -> the field it comes from
    "GANTRY_POD_NAME": "metadata.name",
    "GANTRY_POD_IP": "status.podIP",
}
IMAGE_VARIABLE = "GANTRY_PIPELINE_IMAGE"
_KEYS_MOUNT = "/etc/gantry/tier"  # where the bucket's keys are in an executor's pod
_BACKEND_OPTIONS = {  # option of the backend -> variable that Spark sets in the pod
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_MEMORY = "SPARK_EXECUTOR_MEMORY"
_JAVA_OPTION = "SPARK_JAVA_OPT_"


class Executors(msgspec.Struct, frozen=True):
    """The executors of one job.

    Attributes:
        count: pods, with one core each.
        memory_mib: heap of each; ``OVERHEAD_MIB`` comes on top.
        secret: name of a Secret with ``accessKeyId``, ``secretAccessKey`` and perhaps
            ``sessionToken``; empty for none.
    """

    count: int = 2
    memory_mib: int = MEMORY_MIB
    secret: str = ""


def settings(executors: Executors, env: Mapping[str, str], template: Path) -> dict[str, str]:
    """Spark's settings for a driver in a pod.

    Args:
        executors: what is wanted.
        env: of the driver.
        template: where :func:`pod_template` was written to.

    Raises:
        ConfigError: the driver does not know its own pod or image.
    """
    missing = [name for name in (*POD_FACTS, IMAGE_VARIABLE) if not env.get(name)]
    if missing:
        raise ConfigError(
            f"Executors as pods need a driver that is a pod and knows itself: set "
            f"{', '.join(missing)} (see docs/pipeline.md)."
        )
    return {
        "spark.driver.host": env["GANTRY_POD_IP"],
        "spark.driver.bindAddress": env["GANTRY_POD_IP"],  # executors are told this one
        "spark.kubernetes.driver.pod.name": env["GANTRY_POD_NAME"],
        "spark.kubernetes.namespace": _namespace(env),
        "spark.kubernetes.container.image": env[IMAGE_VARIABLE],
        "spark.kubernetes.executor.podTemplateFile": str(template),
        "spark.kubernetes.executor.podTemplateContainerName": CONTAINER,
        "spark.kubernetes.executor.request.cores": CPU_REQUEST,
        "spark.executor.instances": str(executors.count),
        "spark.executor.cores": "1",
        "spark.executor.memory": f"{executors.memory_mib}m",
        "spark.executor.memoryOverhead": f"{OVERHEAD_MIB}m",
        "spark.sql.shuffle.partitions": str(2 * executors.count),
        # All or nothing: a job that starts on fewer would be slow without a word.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }


def pod_template(executors: Executors) -> str:
    """The executor's pod as far as Spark does not make it; JSON, which is YAML."""
    container: dict[str, Any] = {
        "name": CONTAINER,
        "command": ["gantry", "pipeline"],  # Spark adds the argument "executor"
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],  # noqa: S108 - a volume
    }
    volumes: list[dict[str, Any]] = [{"name": "scratch", "emptyDir": {}}]
    if executors.secret:
        mount = {"name": "tier-keys", "mountPath": _KEYS_MOUNT, "readOnly": True}
        container["volumeMounts"].append(mount)
        container["env"] = [{"name": CREDENTIALS_DIR, "value": _KEYS_MOUNT}]
        keys = {"secretName": executors.secret, "defaultMode": 0o440}
        volumes.append({"name": "tier-keys", "secret": keys})
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "spec": {
                "automountServiceAccountToken": False,
                "securityContext": {
                    "runAsNonRoot": True,
                    "fsGroup": USER_ID,  # so that the files of the Secret can be read
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [container],
                "volumes": volumes,
            },
        }
    )


def executor_command(java: str, jars: Path, env: Mapping[str, str]) -> list[str]:
    """The command of an executor's pod, from the variables that Spark gave it.

    Raises:
        ConfigError: this is no executor's pod.
    """
    missing = [name for name in (*_BACKEND_OPTIONS.values(), _MEMORY) if not env.get(name)]
    if missing:
        raise ConfigError(
            f"This is no executor's pod: {', '.join(missing)} is not set. Spark starts executors; "
            f"a person starts 'gantry pipeline audit --master {MASTER}…'."
        )
    numbered = sorted(
        (int(name.removeprefix(_JAVA_OPTION)), value)
        for name, value in env.items()
        if name.startswith(_JAVA_OPTION)
    )
    options = [
        part for option, variable in _BACKEND_OPTIONS.items() for part in (option, env[variable])
    ]
    return [
        java,
        *(value for _, value in numbered),
        f"-Xms{env[_MEMORY]}",
        f"-Xmx{env[_MEMORY]}",
        *("-cp", f"{jars}/*"),
        BACKEND,
        *options,
    ]


def jars() -> Path:
    """Spark's, in PySpark's package."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None, "the caller has asked for its version"
    assert found.origin is not None, "it is a package"
    return Path(found.origin).with_name("jars")


def _namespace(env: Mapping[str, str]) -> str:
    if given := env.get("GANTRY_POD_NAMESPACE"):
        return given
    try:
        return NAMESPACE_FILE.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ConfigError(
            "Executors as pods need a namespace: set GANTRY_POD_NAMESPACE, or give the driver's "
            "pod a service account."
        ) from error
