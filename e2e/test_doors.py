"""Doors on a real cluster: kube-proxy, kubelets and the API server have their say."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from gantry_operator import names
from harness import faults
from harness.kube import Kube
from harness.node import on_node, process_of, signal
from harness.trial import Figure, Trial
from harness.waiting import wait_until

pytestmark = pytest.mark.usefixtures("operator")

CONNECTIONS = 24
"""Some of them are to the pod of the master."""
RUN_S = 15
ROLL_PATIENCE_S = 180.0
CLIENT = f"""
import asyncio, sys, time
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.remoting.client import RemotingClient

ASKED = {{"topic": "none", "queueId": "0"}}

async def run(address):
    clients = [await RemotingClient().connect(address) for _ in range({CONNECTIONS})]
    until_s = time.monotonic() + {RUN_S}
    while time.monotonic() < until_s:
        for client in clients:
            await client.call(request(RequestCode.GET_MAX_OFFSET, ASKED), {RUN_S})
    print(sum(client.closed for client in clients), "of", len(clients), "ended")

asyncio.run(run(sys.argv[1]))
"""
ALL_STAY = f"0 of {CONNECTIONS} ended"


def test_a_killed_master_ends_no_client_s_connection(trial: Trial) -> None:
    trial.settle()
    service = trial.kube.get("service", trial.group)
    assert service is not None
    address = f"{service['spec']['clusterIP']}:{names.BROKER_REMOTING_PORT}"
    before, others = trial.master()["metadata"]["uid"], connections(trial)
    with ThreadPoolExecutor(1) as background:
        client = background.submit(
            trial.kube.ctl,
            *("exec", trial.soaks[0].name, "--", "python", "-c", CLIENT, address),
            timeout_s=4 * RUN_S,
        )
        wait_until("it is connected", RUN_S, lambda: connections(trial) >= others + CONNECTIONS)
        faults.kill_master_process(trial)
        wait_until("another master", RUN_S, lambda: trial.view()["group"]["masterPodUid"] != before)
        assert client.result().strip() == ALL_STAY
    trial.settle()


def test_a_killed_door_is_started_again_beside_its_broker(trial: Trial) -> None:
    pods = iter(trial.brokers())  # one after the other: a kubelet waits before it starts one again

    def kill(trial: Trial) -> float:
        process = process_of(next(pods), names.DOOR)
        struck_s = time.monotonic()
        signal(process, "KILL")
        return struck_s

    trial.measure("A door SIGKILLed", kill, runs=3, figures=[Figure(limit_ms=1500)])


def test_doors_are_taken_out_and_put_back_under_load(trial: Trial) -> None:
    def change(trial: Trial) -> float:
        began_s = time.monotonic()
        for enabled in (False, True):
            wish = {"spec": {"clients": {"door": {"enabled": enabled}}}}
            trial.kube.patch("brokergroup", trial.group, wish)
            port = names.DOOR_PORT if enabled else names.BROKER_REMOTING_PORT
            wait_until(
                f"the Service leads to {port} of all pods",
                ROLL_PATIENCE_S,
                lambda port=port: leads_to(trial.kube, trial.group) == [port] * 3,
            )
            trial.kube.wait_for("brokergroup", trial.group, "Ready", ROLL_PATIENCE_S)
        return began_s

    trial.measure("Doors taken out of a group and put back", change, runs=1)


def connections(trial: Trial) -> int:
    """Of clients, to all doors of the group."""
    found = 0
    for pod in trial.brokers():
        url = f"http://{pod['status']['podIP']}:{names.DOOR_HTTP_PORT}/status"
        found += json.loads(on_node(pod["spec"]["nodeName"], "curl", "-sS", url))["connections"]
    return found


def leads_to(kube: Kube, service: str) -> list[int]:
    """The port of each Ready pod behind a Service."""
    return [
        port["port"]
        for one in kube.list("endpointslices", f"kubernetes.io/service-name={service}")
        for endpoint in one.get("endpoints") or ()
        if endpoint["conditions"]["ready"]
        for port in one.get("ports") or ()
    ]
