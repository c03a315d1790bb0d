"""Runs actions and undos on this machine: the only place here that starts processes.

The rule protected here: an undo counts as done when its check says so, or when the namespace that
it was for is gone; the exit codes of its commands say nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from gantry_chaos.core.actions import (
    COMMAND_TIMEOUT_S,
    Command,
    DelayDaemon,
    DeletePod,
    KillContainer,
)
from gantry_chaos.errors import InjectionError
from gantry_chaos.inject import processes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_chaos.core.actions import Action, Undo

DAEMON_STOP_S = 5.0
SAID_MAX = 300  # characters of a command's output in an error


class Shell:
    """An executor for a cluster whose processes run on this machine.

    Args:
        kubectl: the command, with what it needs to find the cluster.
    """

    def __init__(self, kubectl: Sequence[str] = ("kubectl",)) -> None:
        self._kubectl = tuple(kubectl)
        self._daemons: dict[str, list[subprocess.Popen[bytes]]] = {}  # by namespace

    def perform(self, action: Action) -> None:
        """Do it.

        Raises:
            InjectionError: it failed; the text says what the command answered.
        """
        match action:
            case Command():
                self.run(action)
            case DeletePod():
                self.run(delete_command(self._kubectl, action))
            case KillContainer(container_id=container_id):
                pid = processes.first_process(container_id, processes.all_processes())
                os.kill(pid, signal.SIGKILL)
            case DelayDaemon():
                self._start(action)

    def undo(self, part: Undo) -> None:
        """Run a part of an undo.

        Raises:
            InjectionError: a check found that the undo did not work.
        """
        if part.netns and processes.process_in(part.netns) is None:
            return  # and with the namespace everything in it
        if isinstance(part, Command):
            self.run(part)
        elif part.text in self.run(Command(part.argv, part.netns)):
            raise InjectionError(
                f"{part.text} is still in what {' '.join(part.argv)} prints in {part.netns}."
            )

    def run(self, command: Command) -> str:
        """The output of a command.

        Raises:
            InjectionError: it failed and may not.
        """
        argv = entering(command.netns, self._inside(command.netns)) + command.argv
        try:
            done = subprocess.run(  # noqa: S603 -- a list of our own words
                argv, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InjectionError(f"{' '.join(command.argv)} did not run: {error}.") from error
        if done.returncode and not command.may_fail:
            said = " ".join((done.stderr or done.stdout).split())[:SAID_MAX]
            raise InjectionError(
                f"{' '.join(command.argv)} ended with code {done.returncode}: {said}."
            )
        return done.stdout

    def stop_daemons(self, netns: str) -> None:
        """End what delays packets in a namespace; packets it holds are let go."""
        for daemon in self._daemons.pop(netns, []):
            try:
                daemon.communicate(timeout=DAEMON_STOP_S)  # ends its standard input
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.communicate()

    def close(self) -> None:
        """End every daemon."""
        for netns in list(self._daemons):
            self.stop_daemons(netns)

    def _start(self, action: DelayDaemon) -> None:
        argv = entering(action.netns, self._inside(action.netns)) + daemon_command(action)
        daemon = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
        assert daemon.stdout is not None
        self._daemons.setdefault(action.netns, []).append(daemon)
        if daemon.stdout.readline() != b"listening\n":
            raise InjectionError(f"Nothing listens on queue {action.queue} in {action.netns}.")

    def _inside(self, netns: str) -> int | None:
        if not netns:
            return None
        pid = processes.process_in(netns)
        if pid is None:
            raise InjectionError(f"The network namespace {netns} is gone: its pod has ended.")
        return pid


def entering(netns: str, pid: int | None) -> tuple[str, ...]:
    """The words before a command that make it run in a network namespace."""
    return ("nsenter", "-t", str(pid), "-n", "--") if netns else ()


def delete_command(kubectl: Sequence[str], action: DeletePod) -> Command:
    """`kubectl delete pod`, which does not wait; a grace period of 0 has to be forced."""
    force = ("--force",) if action.grace_period_s == 0 else ()
    return Command(
        (
            *kubectl,
            *("--namespace", action.namespace, "delete", "pod", action.name, "--wait=false"),
            *(f"--grace-period={action.grace_period_s}", *force),
        )
    )


def daemon_command(action: DelayDaemon) -> tuple[str, ...]:
    """This interpreter with the daemon, which ends when its standard input does."""
    treatment = action.treatment
    return (
        *(sys.executable, "-m", "gantry_chaos.inject.nfqueue"),
        *(str(action.queue), str(action.seed)),
        *(f"{treatment.latency_s}", f"{treatment.jitter_s}", f"{treatment.delay_correlation}"),
        *(f"{treatment.loss}", f"{treatment.loss_correlation}"),
    )
