"""Executors as pods: what Spark is told, what their pods may do, what runs in them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from gantry_pipeline import kubernetes, session
from gantry_pipeline.kubernetes import Executors
from gantry_pipeline.session import Where
from gantry_protocol.errors import ConfigError

DRIVER = {
    "GANTRY_POD_NAME": "audit-1-x",
    "GANTRY_POD_IP": "10.0.0.7",
    "GANTRY_POD_NAMESPACE": "shop",
    "GANTRY_PIPELINE_IMAGE": "gantry-pipeline:dev",
}
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:41000",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "audit-exec-1",
    "SPARK_EXECUTOR_MEMORY": "1024m",
}


def test_settings_name_the_drivers_own_pod_image_and_namespace(tmp_path: Path) -> None:
    found = kubernetes.settings(Executors(count=3, memory_mib=1500), DRIVER, tmp_path / "t.json")
    # Since Spark 4 executors are told the address that is bound, not the one that is advertised.
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "10.0.0.7"
    assert found["spark.kubernetes.driver.pod.name"] == "audit-1-x"  # who owns the executors
    assert found["spark.kubernetes.namespace"] == "shop"
    assert found["spark.kubernetes.container.image"] == "gantry-pipeline:dev"
    assert found["spark.kubernetes.executor.podTemplateFile"] == str(tmp_path / "t.json")
    assert (found["spark.executor.instances"], found["spark.executor.memory"]) == ("3", "1500m")


@pytest.mark.parametrize("lost", ["GANTRY_POD_NAME", "GANTRY_POD_IP", "GANTRY_PIPELINE_IMAGE"])
def test_a_driver_that_does_not_know_itself_is_refused(lost: str, tmp_path: Path) -> None:
    env = {name: value for name, value in DRIVER.items() if name != lost}
    with pytest.raises(ConfigError, match=f"set {lost} "):
        kubernetes.settings(Executors(), env, tmp_path / "t.json")


def test_a_driver_without_a_namespace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "NAMESPACE_FILE", tmp_path / "none")
    env = {name: value for name, value in DRIVER.items() if name != "GANTRY_POD_NAMESPACE"}
    with pytest.raises(ConfigError, match="set GANTRY_POD_NAMESPACE"):
        kubernetes.settings(Executors(), env, tmp_path / "t.json")
    (tmp_path / "there").write_text("shop\n")
    monkeypatch.setattr(kubernetes, "NAMESPACE_FILE", tmp_path / "there")
    found = kubernetes.settings(Executors(), env, tmp_path / "t.json")
    assert found["spark.kubernetes.namespace"] == "shop"


def test_executors_may_not_do_more_than_the_restricted_standard_allows() -> None:
    spec = json.loads(kubernetes.pod_template(Executors()))["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not spec["automountServiceAccountToken"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "env" not in container


def test_keys_are_mounted_and_never_written_down(tmp_path: Path) -> None:
    wanted = Executors(secret="bucket")
    spec = json.loads(kubernetes.pod_template(wanted))["spec"]
    (container,) = spec["containers"]
    (folder,) = [one["value"] for one in container["env"]]
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert volumes[mounts[folder]]["secret"]["secretName"] == "bucket"
    env = DRIVER | {"AWS_ACCESS_KEY_ID": "id-1", "AWS_SECRET_ACCESS_KEY": "secret-1"}
    told = str(kubernetes.settings(wanted, env, tmp_path / "t.json"))
    assert "secret-1" not in told
    assert "id-1" not in told


def test_an_executor_is_started_as_spark_asks() -> None:
    env = EXECUTOR | {"SPARK_JAVA_OPT_10": "-Dten", "SPARK_JAVA_OPT_9": "-Dnine", "HOME": "/x"}
    found = kubernetes.executor_command("/bin/java", Path("/opt/spark/jars"), env)
    at = found.index(kubernetes.BACKEND)
    assert found[:at] == [
        *("/bin/java", "-Dnine", "-Dten", "-Xms1024m", "-Xmx1024m"),
        *("-cp", "/opt/spark/jars/*"),
    ]
    options = dict(zip(found[at + 1 :: 2], found[at + 2 :: 2], strict=True))
    assert options == {
        "--driver-url": "spark://CoarseGrainedScheduler@10.0.0.7:41000",
        "--executor-id": "1",
        "--cores": "1",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.8",
        "--resourceProfileId": "0",
        "--podName": "audit-exec-1",
    }


def test_an_executor_outside_of_its_pod_is_refused() -> None:
    env = {name: value for name, value in EXECUTOR.items() if name != "SPARK_DRIVER_URL"}
    with pytest.raises(ConfigError, match=r"no executor's pod: SPARK_DRIVER_URL is not set"):
        kubernetes.executor_command("/bin/java", Path("/jars"), env)


def test_executors_of_this_machine_are_refused() -> None:
    """Before Spark is started: there is no such thing as `local[*]` with pods."""
    session.java()
    sentence = re.escape("Executors are pods, and local[*] has none: use --master k8s://")
    with (
        pytest.raises(ConfigError, match=sentence),
        session.running("test", Where(executors=Executors())),
    ):
        pass
