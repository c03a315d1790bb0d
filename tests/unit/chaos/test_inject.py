"""Proofs, processes, commands of pod faults, and what a cluster of processes refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from random import Random

import pytest
from gantry_chaos.core.actions import Absent, Command, DelayDaemon, DeletePod, KillContainer
from gantry_chaos.core.timeline import Fault, Timeline
from gantry_chaos.core.treatment import Treatment
from gantry_chaos.errors import InjectionError, UnsupportedFaultError
from gantry_chaos.inject import local, processes, proof, shell
from gantry_chaos.inject.kind import KindBackend, identities, pod_namespace
from gantry_chaos.inject.processes import Process
from gantry_chaos.inject.proof import Attempt, Connects, Counters, Replaced
from gantry_chaos.kinds.chaos import Site
from gantry_chaos.kinds.network import NetworkChaos
from gantry_chaos.kinds.pod import PodChaos
from gantry_chaos.manifests.selection import Container, Pod

LISTED = """\
Chain CHAOS-0A1B2C3D (1 references)
    pkts      bytes target     prot opt in     out     source               destination
     400    22400            0    --  *      *       10.0.0.1             0.0.0.0/0
     {dropped}     6720 DROP       0    --  *      *       10.0.0.1             0.0.0.0/0   stat
       0        0            all  --  *      *       10.0.0.2             0.0.0.0/0
       0        0 DROP       all  --  *      *       10.0.0.2             0.0.0.0/0
"""


@pytest.mark.parametrize(
    ("dropped", "probability", "verdict"),
    [
        ("120", 0.3, ""),
        ("120", None, ""),
        ("0", None, "None of 4 rules matched a packet"),
        ("0", 0.3, "None of 4 rules matched a packet"),
        ("20", 0.3, "20 of 400 packets were dropped where 30.0% were asked for"),
        ("300", 0.3, "300 of 400 packets were dropped"),
    ],
)
def test_counters(dropped: str, probability: float | None, verdict: str) -> None:
    said = proof.counters_verdict(Counters((), probability), [LISTED.format(dropped=dropped)])
    assert said.startswith(verdict)
    assert bool(said) == bool(verdict)


def test_few_packets_prove_no_share() -> None:
    text = LISTED.format(dropped="9").replace(" 400 ", " 30 ")
    assert "Only 30 packets" in proof.counters_verdict(Counters((), 0.3), [text])
    assert "None of 0 rules" in proof.counters_verdict(Counters(()), ["no chain"])


def attempts(*took_ms: float | None) -> list[Attempt]:
    return [Attempt(one) for one in took_ms]


@pytest.mark.parametrize(
    ("expect", "before", "during", "verdict"),
    [
        ("failure", (1.0, 1.0), (None, None), ""),
        ("failure", (1.0, 1.0), (None, 3.0), "1 of 2 attempts to connect went through"),
        ("failure", (1.0, None), (None, None), "Connecting failed already before"),
        ("failure", (), (None,), "Connecting failed already before"),
        ("delay", (1.0, 2.0, 1.0), (101.0, 90.0, 103.0), ""),
        ("delay", (1.0, 2.0, 1.0), (20.0, 21.0, 22.0), "Connecting took 20.0 ms longer"),
        ("delay", (1.0,), (None,), "Nothing connected during the delay"),
    ],
)
def test_connecting(
    expect: str, before: tuple[float, ...], during: tuple[float, ...], verdict: str
) -> None:
    probe = Connects((), "failure") if expect == "failure" else Connects((), "delay", 0.1)
    said = proof.connects_verdict(probe, attempts(*before), attempts(*during))
    assert said.startswith(verdict)
    assert bool(said) == bool(verdict)


def test_after_the_heal_everything_connects() -> None:
    assert proof.healed_verdict(attempts(1.0, 2.0)) == ""
    assert "1 of 2 attempts" in proof.healed_verdict(attempts(1.0, None))


@pytest.mark.parametrize(
    ("text", "took_ms"),
    [("ok 1.25\n", 1.25), ("failed timed out\n", None), ("", None), ("ok x", None)],
)
def test_what_an_attempt_prints(text: str, took_ms: float | None) -> None:
    assert proof.attempt(text) == Attempt(took_ms)


def test_a_struck_process_is_another_one() -> None:
    probe = Replaced(("shop/a", "shop/b"))
    before = {"shop/a": "1", "shop/b": "2"}
    assert proof.replaced_verdict(probe, before, {"shop/a": "3"}) == ""
    assert "shop/b still runs" in proof.replaced_verdict(probe, before, {"shop/b": "2"})
    assert "not known who shop/b" in proof.replaced_verdict(probe, {"shop/a": "1"}, {})


def test_the_first_process_of_a_container() -> None:
    everybody = [
        Process(10, "0::/kubelet/podx/abc123", "Name:\tsh\nNSpid:\t10\t77\t9\n"),
        Process(11, "0::/kubelet/podx/abc123", "Name:\tpython\nNSpid:\t11\t78\t1\n"),
        Process(12, "0::/kubelet/podx/def456", "NSpid:\t12\t79\t1\n"),
    ]
    assert processes.first_process("abc123", everybody) == 11
    with pytest.raises(InjectionError, match="None of 0 processes of container 999"):
        processes.first_process("999", everybody)


def test_own_namespace_is_found_by_its_name() -> None:
    mine = processes.network_namespace(os.getpid())
    assert mine.startswith("net:[")
    assert processes.process_in(mine) is not None
    assert processes.process_in("net:[0]") is None
    with pytest.raises(InjectionError, match="is gone"):
        processes.network_namespace(2**22 + 1)


POD = Pod("shop", "a", "u1", containers=(Container("main", "c1"), Container("side", "c2")))
SITE = Site("x", [POD], (), str, lambda _: None, "run", Random(1))


def spec(**fields: object) -> PodChaos:
    return PodChaos.model_validate({"mode": "all", "selector": {}, **fields})


def test_pod_faults_name_what_they_strike() -> None:
    injection, (replaced,) = spec(action="pod-kill", gracePeriod=5).prepare(SITE)
    assert injection.actions == (DeletePod("shop", "a", "u1", 5),)
    assert replaced == Replaced(("shop/a",))
    assert injection.undo == ()
    killed = spec(action="container-kill", containerNames=["side"])
    injection, (replaced,) = killed.prepare(SITE)
    assert injection.actions == (KillContainer("shop", "a", "side", "c2"),)
    assert replaced == Replaced(("shop/a/side",))
    assert identities([POD]) == {"shop/a": "u1", "shop/a/main": "c1", "shop/a/side": "c2"}
    with pytest.raises(InjectionError, match="runs no container 'x'; it runs main, side"):
        spec(action="container-kill", containerNames=["x"]).prepare(SITE)


def test_commands_are_built_as_they_are_run() -> None:
    kubectl = ("kubectl", "--kubeconfig=k")
    now = shell.delete_command(kubectl, DeletePod("shop", "a", "u1", 0))
    assert " ".join(now.argv) == (
        "kubectl --kubeconfig=k --namespace shop delete pod a --wait=false --grace-period=0 --force"
    )
    assert "--force" not in shell.delete_command(kubectl, DeletePod("shop", "a", "u", 5)).argv
    assert shell.entering("", None) == ()
    assert shell.entering("net:[1]", 7) == ("nsenter", "-t", "7", "-n", "--")
    daemon = DelayDaemon("net:[1]", 1001, Treatment(0.1, 0.02, 0.25), 5)
    words = shell.daemon_command(daemon)
    assert words[0] == sys.executable
    assert words[1:] == (
        *("-m", "gantry_chaos.inject.nfqueue", "1001", "5"),
        *("0.1", "0.02", "0.25", "0.0", "0.0"),
    )


def test_the_shell_says_what_failed() -> None:
    run = shell.Shell().run
    assert run(Command((sys.executable, "-c", "print('hello')"))) == "hello\n"
    failing = (sys.executable, "-c", "import sys; sys.exit('no rule')")
    with pytest.raises(InjectionError, match=r"ended with code 1: no rule\."):
        run(Command(failing))
    assert run(Command(failing, may_fail=True)) == ""
    with pytest.raises(InjectionError, match="did not run"):
        run(Command(("/no/such/program",)))
    with pytest.raises(InjectionError, match="is gone"):
        run(Command(("true",), "net:[0]"))


def test_an_undo_is_judged_by_its_check() -> None:
    undo = shell.Shell().undo
    mine = processes.network_namespace(os.getpid())
    says = (sys.executable, "-c", "print('-A CHAOS-1')")
    undo(Absent(says, "CHAOS-1", "net:[0]"))  # gone, and everything with it
    undo(Absent(says, "CHAOS-2", ""))
    with pytest.raises(InjectionError, match="CHAOS-1 is still in what"):
        undo(Absent(says, "CHAOS-1", ""))
    assert mine


def line(one: PodChaos | NetworkChaos) -> Timeline:
    return Timeline((Fault("x", "f.yaml: spec", "shop", one, 0.0, 1.0),), 1.0)


def test_a_cluster_of_processes_refuses_what_it_cannot_do() -> None:
    both = {"mode": "all", "selector": {}}
    cut = NetworkChaos.model_validate({**both, "action": "partition", "target": both})
    with pytest.raises(UnsupportedFaultError, match=r"x is a NetworkChaos \(partition\), but pods"):
        local.check(line(cut))
    with pytest.raises(UnsupportedFaultError, match="gracePeriod 0"):
        local.check(line(spec(action="pod-kill")))
    local.check(line(spec(action="pod-kill", gracePeriod=1)))
    local.check(line(spec(action="container-kill", containerNames=["main"])))


class Processes:
    """Pods whose processes are replaced when they are hurt."""

    def __init__(self) -> None:
        self.pods = [POD]
        self.done: list[str] = []

    def kill(self, pod: str) -> None:
        self.done.append(f"kill {pod}")
        self.pods = [Pod("shop", "a", "u1", containers=(Container("main", "c9"),))]

    def delete(self, pod: str) -> None:
        self.done.append(f"delete {pod}")


def test_faults_of_processes_are_proved() -> None:
    cluster = Processes()
    backend = local.LocalBackend(lambda: cluster.pods, cluster)
    kill = Fault(
        "k", "f.yaml: spec", "shop", spec(action="container-kill", containerNames=["main"]), 0, 1
    )
    delete = Fault("d", "f.yaml: spec", "shop", spec(action="pod-kill", gracePeriod=1), 0, 1)
    for fault in (kill, delete):
        for action in backend.prepare(fault, Random(1)).actions:
            backend.perform(action)
    assert cluster.done == ["kill a", "delete a"]
    assert backend.prove(kill) == ""
    assert backend.prove(delete) == "shop/a still runs as the same process."
    with pytest.raises(InjectionError, match="Command is not possible"):
        backend.perform(Command(("true",)))


class Running:
    """A real process that stands for a container's first one."""

    def __init__(self, container_id: str) -> None:
        hold = (sys.executable, "-c", "import time; time.sleep(60)")
        self.process = subprocess.Popen(hold)
        self.container_id = container_id

    def all_processes(self) -> list[Process]:
        cgroup = f"0::/kubelet/{self.container_id}.scope"
        return [Process(self.process.pid, cgroup, f"NSpid:\t{self.process.pid}\t1\n")]


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    found = Running("c1")
    monkeypatch.setattr(processes, "all_processes", found.all_processes)
    yield found
    found.process.kill()
    found.process.wait()


def test_a_container_is_killed_and_the_kill_is_proved(running: Running) -> None:
    pods = [POD]
    backend = KindBackend(lambda: pods, lambda _: None, "run", shell.Shell())
    container = spec(action="container-kill", containerNames=["main"])
    fault = Fault("k", "f.yaml: spec", "shop", container, 0, 1)
    (action,) = backend.prepare(fault, Random(1)).actions
    assert backend.prove(fault) == "shop/a/main still runs as the same process."
    backend.perform(action)
    assert running.process.wait(10) == -signal.SIGKILL
    pods[0] = Pod("shop", "a", "u1", containers=(Container("main", "c9"),))
    assert backend.prove(fault) == ""
    assert backend.ended(fault) == ""


def test_rules_never_stand_in_this_machines_own_network(running: Running) -> None:
    with pytest.raises(InjectionError, match="shop/a uses this machine's own network"):
        pod_namespace(POD)
    with pytest.raises(InjectionError, match="runs no container at the moment"):
        pod_namespace(Pod("shop", "b", "u2"))
    with pytest.raises(InjectionError, match="None of 0 processes"):
        pod_namespace(Pod("shop", "b", "u2", containers=(Container("main", "other"),)))
