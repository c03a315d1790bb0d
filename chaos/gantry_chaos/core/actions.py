"""Parts of an injection, as data that a journal can hold and a test can read.

The rule protected here: whoever prepares an injection names its undo at the same time, and every
part of an undo may be run when nothing, a part or all of the injection happened, any number of
times. Whether an undo worked is decided by looking (`Absent`), not by exit codes.
"""

from __future__ import annotations

import msgspec

from gantry_chaos.core.treatment import Treatment  # noqa: TC001 -- msgspec reads it

COMMAND_TIMEOUT_S = 30.0


class Command(msgspec.Struct, frozen=True, tag=True):
    """A program to run on this machine.

    Attributes:
        netns: the network namespace it runs in, as `readlink /proc/PID/ns/net` says; empty: ours.
        may_fail: a part of an undo, which fails when there is nothing to undo.
    """

    argv: tuple[str, ...]
    netns: str = ""
    may_fail: bool = False


class Absent(msgspec.Struct, frozen=True, tag=True):
    """A check: what `argv` prints must not contain `text`."""

    argv: tuple[str, ...]
    text: str
    netns: str


class DeletePod(msgspec.Struct, frozen=True, tag=True):
    """Ask the API server to delete a pod; `uid` is the one that was chosen."""

    namespace: str
    name: str
    uid: str
    grace_period_s: int


class KillContainer(msgspec.Struct, frozen=True, tag=True):
    """SIGKILL the first process of a container, behind the kubelet's back."""

    namespace: str
    pod: str
    container: str
    container_id: str


class DelayDaemon(msgspec.Struct, frozen=True, tag=True):
    """A process that holds packets of one queue back; it ends with whoever started it."""

    netns: str
    queue: int
    treatment: Treatment
    seed: int


Action = Command | DeletePod | KillContainer | DelayDaemon
Undo = Command | Absent


class Injection(msgspec.Struct, frozen=True):
    """A prepared fault.

    Attributes:
        targets: pods that are struck, for people.
        actions: in order; the last one switches a network fault on.
        undo: in order; empty for faults that strike once.
    """

    targets: tuple[str, ...]
    actions: tuple[Action, ...]
    undo: tuple[Undo, ...] = ()
