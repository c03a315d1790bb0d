"""One broker group under load: settle it, hurt it, measure it, and account for every message.

Every figure is the client's: the longest time between two successive acknowledgements from the
moment of the failure on, the worse of two clients on two nodes. Killed containers start again at
once, however often (``cluster/kind.yaml``).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gantry_operator import names
from harness.node import is_paused
from harness.report import Account, Report
from harness.shell import CommandError
from harness.soak import Gap, Soak
from harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.kube import Kube, Object

SETTLE_PATIENCE_S = 120.0
RESUME_PATIENCE_S = 60.0
ACCOUNT_PATIENCE_S = 30.0
LAST_WORDS = 25  # lines of each container
RUNS_MAX = int(os.environ.get("GANTRY_E2E_RUNS", "1000"))  # of one fault
QUIET_S = 1.0  # writes flow again once acknowledgements have come all this time


class Figure(NamedTuple):
    """What is measured of a fault: a stream of the load, and how long it may stand still."""

    measured: str = "write gap"
    stream: str = "writes"
    limit_ms: float | None = None


WRITES = Figure()


class Trial:
    """A group, its controllers, and the load on it.

    Args:
        kube: the namespace of both.
        group: name of the BrokerGroup.
        controllers: name of the ControllerGroup.
        soaks: the clients; each runs on a node of its own.
        report: where figures are entered.
    """

    def __init__(
        self, kube: Kube, group: str, controllers: str, soaks: Sequence[Soak], report: Report
    ) -> None:
        self.kube = kube
        self.group = group
        self.controllers = controllers
        self.soaks = list(soaks)
        self.report = report
        self._accounted = {soak.name: Account() for soak in soaks}

    def measure(
        self,
        scenario: str,
        fault: Callable[[Trial], float],
        *,
        runs: int,
        figures: Sequence[Figure] = (WRITES,),
        heal: Callable[[Trial], None] | None = None,
    ) -> None:
        """Let `fault` strike `runs` times and enter the figures; then account for all messages.

        Args:
            scenario: what happens, for the report.
            fault: does it, and returns when it struck.
            runs: how often, if no more than ``RUNS_MAX`` are allowed.
            figures: what is measured.
            heal: undoes the fault once the gap is known, also when there is none.

        Raises:
            AssertionError: messages were lost, misplaced or stored twice without a reason, or two
                brokers were master in one epoch.
            TimeoutError: writes did not resume, or the group did not heal.
        """
        gaps: dict[Figure, list[float]] = {figure: [] for figure in figures}
        runs = min(runs, RUNS_MAX)
        print(f"\n{scenario}:", flush=True)
        try:
            for run in range(runs):
                self._strike(fault, gaps, heal)
                told = ", ".join(
                    f"{figure.measured} {gaps[figure][-1]:.0f} ms" for figure in figures
                )
                print(f"  run {run + 1} of {runs}: {told}", flush=True)
            self.settle()
            account = self.account()
        except (AssertionError, TimeoutError) as error:
            self._explain(error)
            raise
        for number, figure in enumerate(figures):
            self.report.add(
                scenario,
                figure.measured,
                gaps[figure],
                limit=figure.limit_ms,
                account=account if number == 0 else None,
            )

    def _strike(
        self,
        fault: Callable[[Trial], float],
        gaps: dict[Figure, list[float]],
        heal: Callable[[Trial], None] | None,
    ) -> None:
        self.settle()
        try:
            struck_s = fault(self)
            for figure, found in gaps.items():
                found.append(self._resumed(struck_s, figure.stream).ms)
        except TimeoutError as error:
            self._explain(error)  # as it is before it is healed
            raise
        finally:
            if heal is not None:
                heal(self)

    def _explain(self, error: Exception) -> None:
        """For whoever reads why it failed, if it was not said yet."""
        if not hasattr(error, "__notes__"):
            error.add_note(self.said())

    def said(self) -> str:
        """The state that each client sees, and the last words of all pods."""
        words = []
        for soak in self.soaks:
            if not is_paused(soak.node):
                with suppress(Exception):
                    words.append(f"{soak.name} sees {soak.state()}")
        for pod in self.kube.list("pods"):
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
            if node and is_paused(node):
                words.append(f"{name} stands still with {node}")
                continue
            with suppress(CommandError):
                told = self.kube.ctl(
                    "logs", name, "--all-containers", "--timestamps", f"--tail={LAST_WORDS}"
                )
                words.append(f"{name} on {node} said:\n{told}")
        return "\n".join(words)

    def settle(self) -> None:
        """Let the load run; wait until everybody is in sync and connected, and writes flow."""
        for soak in self.soaks:
            soak.resume()
        deadline = time.monotonic() + SETTLE_PATIENCE_S
        for soak in self.soaks:
            wait_until(
                f"{self.group} heals, as {soak.name} sees it",
                max(1.0, deadline - time.monotonic()),
                lambda soak=soak: _settled(soak),  # type: ignore[misc]
            )

    def account(self) -> Account:
        """Stop all clients and compare what was sent with what was consumed, since the last time.

        They stay quiet until the next `settle`, so that other tests have the processors.
        """
        found = Account()
        for soak in self.soaks:
            paused = soak.pause(ACCOUNT_PATIENCE_S)
            state = soak.state()
            verdict = paused["verdict"]
            assert paused["clean"], f"{soak.name}: {verdict}"
            assert paused["outstanding"] == 0, f"{soak.name}: not consumed: {verdict}"
            assert state["conflicts"] == [], f"two masters in epochs {state['conflicts']}"
            assert state["illegalOffsets"] == 0, f"{soak.name}: {state['illegalOffsets']}"
            total = Account(
                verdict["acknowledged"],
                verdict["lost"],
                verdict["duplicated"],
                verdict["duplicatedAfterLostAnswer"],
            )
            before, self._accounted[soak.name] = self._accounted[soak.name], total
            found = found.plus(Account(*(a - b for a, b in zip(total, before, strict=True))))
        return found

    def master(self) -> Object:
        """The master's pod, by the controllers' word."""
        group = self.view()["group"]
        for pod in self.brokers():
            if pod["metadata"]["uid"] == group["masterPodUid"]:
                return pod
        raise AssertionError(f"the master of {self.group} has no pod: {group}")

    def leader(self) -> Object:
        """The pod of the controllers' leader."""
        name = self.view()["quorum"]["leaderName"]
        pod = self.kube.get("pod", name)
        assert pod is not None, f"the leader {name} has no pod"
        return pod

    def view(self) -> dict[str, dict[str, str]]:
        """What a client that is not frozen sees of the group."""
        return next(soak.state() for soak in self.soaks if not is_paused(soak.node))

    def brokers(self) -> list[Object]:
        """The pods of the group."""
        return self._pods(names.BROKER, self.group)

    def quorum(self) -> list[Object]:
        """The pods of the controllers."""
        return self._pods(names.CONTROLLER, self.controllers)

    def _pods(self, component: str, instance: str) -> list[Object]:
        labels = names.selector(component, instance)
        return self.kube.list("pods", ",".join(f"{key}={text}" for key, text in labels.items()))

    def _resumed(self, since_s: float, stream: str) -> Gap:
        """Wait until `stream` flows again for every client; the longest gap of all."""
        gaps = [
            wait_until(
                f"{stream} of {soak.name} resume",
                RESUME_PATIENCE_S,
                lambda soak=soak: _gap_once_flowing(soak, since_s, stream),  # type: ignore[misc]
            )
            for soak in self.soaks
            if not is_paused(soak.node)
        ]
        return max(gaps, key=lambda gap: gap.ms)


def _settled(soak: Soak) -> bool:
    state = soak.state()
    return bool(
        state["flowing"]
        and state["group"]
        and state["group"]["settled"]
        and state["group"]["staleS"] < QUIET_S
        and state["quorum"]
        and state["quorum"]["whole"]
    )


def _gap_once_flowing(soak: Soak, since_s: float, stream: str) -> Gap | None:
    state = soak.state()
    flowing = state["flowing" if stream == "writes" else "commitsFlowing"]
    if not flowing or state["nowS"] < since_s + QUIET_S:
        return None
    return soak.gap(since_s, stream)
