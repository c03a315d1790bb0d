"""Network faults in real network namespaces of this machine: they bite, and they are healed.

Two namespaces joined by a pair of interfaces stand for two pods. Needs root and iptables, as
injecting on kind does; nothing outside the two namespaces is touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from gantry_chaos.core.timeline import Timeline, timeline
from gantry_chaos.errors import JournalInUseError
from gantry_chaos.inject import processes, proof
from gantry_chaos.inject.kind import KindBackend
from gantry_chaos.inject.shell import Shell
from gantry_chaos.kinds.network import connect_command
from gantry_chaos.manifests.reader import parse
from gantry_chaos.manifests.selection import Pod
from gantry_chaos.plan import engine
from gantry_chaos.plan.clock import SystemClock
from gantry_chaos.plan.journal import Journal

PORT = 7777
SOURCE, TARGET = (
    Pod("shop", name, f"uid-{name}", ip=f"10.231.0.{n}", labels={"pod": name})
    for n, name in enumerate(("source", "target"), 1)
)
SERVER = f"""
import socket
tcp = socket.create_server(("0.0.0.0", {PORT}))
print("listening", flush=True)
while True:
    tcp.accept()[0].close()
"""
SENDER = f"""
import socket, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(20_000):
    try:
        udp.sendto(b"x", ("{TARGET.ip}", {PORT}))
    except OSError:  # the target answered that nobody listens
        pass
    time.sleep(0.001)
"""


def needed() -> str:
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    missing = [tool for tool in ("unshare", "nsenter", "ip", "iptables") if not shutil.which(tool)]
    if missing:
        return f"{', '.join(missing)} is not installed"
    probe = ("unshare", "-n", "iptables", "-L")
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        return "no network namespace with a packet filter can be made here"
    return ""


REASON = needed()
# Real network namespaces and a packet filter; `needed` says in words what is missing for them.
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)


class Pods:
    """The two namespaces, with a server in the target's."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[str]] = []
        self.pids = {pod.name: self._namespace() for pod in (SOURCE, TARGET)}
        pid = self.pids
        outside = ("nsenter", "-t", str(pid["source"]), "-n", "ip", "link", "add", "eth0")
        self._do(*outside, "type", "veth", "peer", "name", "eth0", "netns", str(pid["target"]))
        for pod in (SOURCE, TARGET):
            self.run(pod, "ip", "address", "add", f"{pod.ip}/24", "dev", "eth0")
            self.run(pod, "ip", "link", "set", "eth0", "up")
        server = self.start(TARGET, sys.executable, "-c", SERVER)
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"

    def namespace_of(self, pod: Pod) -> str:
        return processes.network_namespace(self.pids[pod.name])

    def start(self, pod: Pod, *argv: str) -> subprocess.Popen[str]:
        entering = ("nsenter", "-t", str(self.pids[pod.name]), "-n")
        process = subprocess.Popen((*entering, *argv), stdout=subprocess.PIPE, text=True)
        self.running.append(process)
        return process

    def run(self, pod: Pod, *argv: str) -> str:
        return self._do("nsenter", "-t", str(self.pids[pod.name]), "-n", *argv)

    def rules(self) -> str:
        """Everything in the packet filters of both that has our tags."""
        saved = [
            self.run(pod, "iptables-save", "-t", table)
            for pod in (SOURCE, TARGET)
            for table in ("filter", "mangle")
        ]
        lines = "".join(saved).splitlines()
        return "\n".join(line for line in lines if "CHAOS" in line)

    def close(self) -> None:
        for process in reversed(self.running):
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _namespace(self) -> int:
        hold = "import time; print(1, flush=True); time.sleep(600)"
        process = subprocess.Popen(
            ("unshare", "-n", sys.executable, "-c", hold), stdout=subprocess.PIPE, text=True
        )
        self.running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        return process.pid

    @staticmethod
    def _do(*argv: str) -> str:
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def pods() -> Iterator[Pods]:
    found = Pods()
    try:
        yield found
    finally:
        found.close()


def network_chaos(
    action: str, more: str, direction: str = "both", duration: str = "1500ms"
) -> Timeline:
    return timeline(
        parse(
            f"""
apiVersion: chaos-mesh.org/v1alpha1
kind: NetworkChaos
metadata: {{name: x, namespace: shop}}
spec:
  action: {action}
  mode: all
  duration: {duration}
  direction: {direction}
  selector: {{labelSelectors: {{pod: source}}}}
  target: {{mode: all, selector: {{labelSelectors: {{pod: target}}}}}}
  {more}
""",
            "x.yaml",
        )
    )


def backend(pods: Pods, shell: Shell | None = None) -> KindBackend:
    return KindBackend(
        lambda: [SOURCE, TARGET], lambda _: PORT, "run", shell or Shell(), pods.namespace_of
    )


def play(pods: Pods, plan: Timeline, path: Path) -> engine.Band:
    with Journal(path / "journal", "run") as journal:
        (band,) = engine.run(plan, backend(pods), journal, SystemClock(), seed=1)
    assert pods.rules() == ""
    return band


@pytest.mark.parametrize("direction", ["to", "from", "both"])
def test_a_partition_cuts_and_is_healed(pods: Pods, tmp_path: Path, direction: str) -> None:
    assert play(pods, network_chaos("partition", "", direction), tmp_path).invalid == ""


def test_a_partition_nobody_notices_is_not_proved(pods: Pods, tmp_path: Path) -> None:
    """No port is known, so the proof cannot connect by itself, and nobody else does."""
    quiet = KindBackend(lambda: [SOURCE, TARGET], lambda _: None, "run", Shell(), pods.namespace_of)
    with Journal(tmp_path / "journal", "run") as journal:
        plan = network_chaos("partition", "")
        (band,) = engine.run(plan, quiet, journal, SystemClock(), seed=1)
    assert band.invalid == "None of 4 rules matched a packet: there was no traffic to strike."


def test_loss_drops_its_share(pods: Pods, tmp_path: Path) -> None:
    pods.start(SOURCE, sys.executable, "-c", SENDER)
    plan = network_chaos("loss", 'loss: {loss: "30"}', duration="4s")
    assert play(pods, plan, tmp_path).invalid == ""


def test_loss_with_correlation_is_done_by_the_daemon(pods: Pods, tmp_path: Path) -> None:
    pods.start(SOURCE, sys.executable, "-c", SENDER)
    more = 'loss: {loss: "30", correlation: "50"}'
    assert play(pods, network_chaos("loss", more, duration="4s"), tmp_path).invalid == ""


def test_delay_delays(pods: Pods, tmp_path: Path) -> None:
    more = 'delay: {latency: "100ms", jitter: "20ms", correlation: "25"}'
    assert play(pods, network_chaos("delay", more, "to"), tmp_path).invalid == ""


def test_what_a_killed_harness_leaves_is_healed_by_its_journal(pods: Pods, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    class Dying(Shell):
        """Dies, as far as the cluster is concerned, once the fault is on."""

        alive = True

        def undo(self, part: object) -> None:
            raise Killed

    class Death(SystemClock):
        def sleep(self, seconds: float) -> None:
            if seconds > 0:
                raise Killed

    plan, dying = network_chaos("partition", ""), backend(pods, Dying())
    with Journal(tmp_path / "journal", "run") as journal, pytest.raises(Killed):
        engine.run(plan, dying, journal, Death(), seed=1)
    assert pods.rules().count("DROP") == 4
    with Journal(tmp_path / "journal", "run") as journal:
        assert engine.heal(journal, Shell()) == ["x"]
    assert pods.rules() == ""


HARNESS = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
import test_namespaces as here
class Fixed:
    pids = {pids!r}
    namespace_of = here.Pods.namespace_of
plan = here.network_chaos("delay", 'delay: {{latency: "200ms"}}', "to", "600s")
with here.Journal(Path({journal!r}), "run") as journal:
    class Held(here.SystemClock):
        def sleep(self, seconds):
            if seconds > 0:
                print("injected", flush=True)
                super().sleep(60)
    here.engine.run(plan, here.backend(Fixed()), journal, Held(), seed=1)
"""


def test_a_harness_killed_by_sigkill_leaves_nothing_that_cannot_be_healed(
    pods: Pods, tmp_path: Path
) -> None:
    """The daemon ends with it, so packets flow at once; the journal removes the rules."""
    path = tmp_path / "journal"
    script = HARNESS.format(folder=str(Path(__file__).parent), pids=pods.pids, journal=str(path))
    harness = subprocess.Popen((sys.executable, "-c", script), stdout=subprocess.PIPE, text=True)
    pods.running.append(harness)
    assert harness.stdout is not None
    while harness.stdout.readline() != "injected\n":
        assert harness.poll() is None
    connect = connect_command(pods.namespace_of(SOURCE), TARGET.ip, PORT)
    slow = proof.attempt(Shell().run(connect)).took_ms
    assert slow is not None
    assert slow >= 190
    with pytest.raises(JournalInUseError):
        Journal(path, "run")
    harness.kill()
    harness.wait()
    deadline_s = time.monotonic() + 120
    while (took := proof.attempt(Shell().run(connect)).took_ms) is None or took > 100:
        assert time.monotonic() < deadline_s, "packets are still held"
    assert "NFQUEUE" in pods.rules()
    with Journal(path, "run") as journal:
        assert engine.heal(journal, Shell()) == ["x"]
    assert pods.rules() == ""


def test_rules_of_others_stay(pods: Pods, tmp_path: Path) -> None:
    other = ("iptables", "-A", "INPUT", "-s", "192.0.2.1", "-j", "DROP")
    pods.run(TARGET, *other)
    play(pods, network_chaos("partition", ""), tmp_path)
    assert "-A INPUT -s 192.0.2.1/32 -j DROP" in pods.run(TARGET, "iptables-save")


def test_a_namespace_that_is_gone_needs_no_heal(pods: Pods, tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", "run") as journal:
        kind = backend(pods)
        plan = network_chaos("partition", "")
        injection = kind.prepare(plan.faults[0], Random(1))
        journal.begin("x", injection.targets, injection.undo)
        for action in injection.actions:
            kind.perform(action)
        pods.close()
        assert engine.heal(journal, kind) == ["x"]
