"""The example's proxies: what they are told is understood, and their pods are restricted."""

from __future__ import annotations

from pathlib import Path

import yaml
from gantry_operator import names
from gantry_proxy.settings import GRPC_PORT, HTTP_PORT, ProxySettings

ROOT = Path(__file__).resolve().parents[3]
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
