"""The example's proxies: what they are told is understood, and their pods are restricted."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from gantry_operator import names
from gantry_operator.builders.pods import READABLE_BY_GROUP
from gantry_protocol.process.config import load_settings
from gantry_proxy.settings import GRPC_PORT, HTTP_PORT, ProxySettings

ROOT = Path(__file__).resolve().parents[3]
ACCESS = yaml.safe_load((ROOT / "examples/proxy/access.yaml").read_text("utf-8"))
EXAMPLE = (ROOT / "examples/proxy/deployment.yaml").read_text("utf-8")
deployment, service = yaml.safe_load_all(EXAMPLE)
pod = deployment["spec"]["template"]
(container,) = pod["spec"]["containers"]


def test_arguments_are_settings() -> None:
    command, *flags = container["args"]
    told = {flag.removeprefix("--"): value for flag, value in zip(flags[::2], flags[1::2])}  # noqa: B905
    settings = ProxySettings(nameserver=[told.pop("nameserver")], **told)
    assert (command, settings.bind) == ("proxy", "0.0.0.0")


def test_ports_are_those_that_a_proxy_listens_at() -> None:
    ports = {item["name"]: item["containerPort"] for item in container["ports"]}
    assert ports == {"grpc": GRPC_PORT, "http": HTTP_PORT}
    assert service["spec"]["ports"][0]["port"] == GRPC_PORT
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_services_set_no_variables() -> None:
    """The Service's own would be GANTRY_GRPC_PORT=tcp://…, which is a setting's name."""
    assert pod["spec"]["enableServiceLinks"] is False


def test_the_pods_are_restricted_and_let_through() -> None:
    assert pod["metadata"]["labels"][names.LABEL_TOOLS] == "true"
    assert not pod["spec"]["automountServiceAccountToken"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_patch_for_access_says_what_the_operator_has_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patched = ACCESS["spec"]["template"]["spec"]
    (patch,) = patched["containers"]
    assert patch["name"] == container["name"]
    for item in patch["env"]:
        monkeypatch.setenv(item["name"], item["value"])
    monkeypatch.setenv("GANTRY_NAMESERVER", "gantry-nameserver:9876")
    found = load_settings(ProxySettings, {})
    replicas = range(len(found.controllers))
    assert found.controllers == [
        f"{names.controller_statefulset('gantry')}-{number}"
        f".{names.controller_statefulset('gantry')}:{names.CONTROLLER_REMOTING_PORT}"
        for number in replicas
    ]
    assert found.quorum_key_file == Path(names.QUORUM_DIR) / names.QUORUM_KEY
    (volume,), (mount,) = patched["volumes"], patch["volumeMounts"]
    assert volume["secret"]["secretName"] == names.quorum_secret("gantry")
    assert volume["secret"]["defaultMode"] == READABLE_BY_GROUP
    assert (mount["mountPath"], mount["name"]) == (names.QUORUM_DIR, volume["name"])
    assert patched["securityContext"]["fsGroup"] == pod["spec"]["securityContext"]["runAsUser"]
