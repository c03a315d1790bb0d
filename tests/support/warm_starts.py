"""Processes of the product that begin where its imports have ended.

An interpreter that starts `gantry broker` computes for most of a second before the first line of
the broker runs, and the integration tests start many hundreds. So a test process has a *nursery*:
an interpreter that has imported the product and does nothing else. Where a test, or a process that
a test has started, calls `subprocess.Popen` for a program of the product, the nursery forks, and
the child runs that program.

The process is a child of who asked for it, with its own pid, session, directory, variables,
descriptors, command line, signals and exit code: tests/integration/test_warm_starts.py compares.
It is forked by a child of the nursery that ends at once, while who asks is the reaper of orphans;
so the kernel makes it the parent.

What differs: modules are there before they are asked for, all children of one nursery hash strings
alike, and /proc/PID/environ is the nursery's. Whatever `_wanted` does not know has an interpreter
of its own as ever; so has everything if ``GANTRY_COLD_STARTS`` is set.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import inspect
import io
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

SUPPORT = Path(__file__).resolve().parent
ROOT = SUPPORT.parents[1]
LAUNCHER = str(ROOT / "local/gantry_local/kubelet/launch.py")
FILES = frozenset(
    {LAUNCHER, *(str(SUPPORT / name) for name in ("hanging_disk.py", "start_facts.py"))}
)
MODULES = frozenset({"gantry_cli", "gantry_local.daemon"})
SPAWNERS = (["gantry_cli", "local"], ["gantry_cli", "demo"], ["gantry_local.daemon"])
NOT_WARMED = frozenset({"gantry_cli.commands.pipeline"})  # Spark
FLAGS = frozenset({"-P", "-I", "-S"})
UNBUFFERED, SAFE_PATH = "PYTHONUNBUFFERED", "PYTHONSAFEPATH"
SEEN_TO = frozenset({UNBUFFERED, SAFE_PATH, "PYTHONDONTWRITEBYTECODE"})
COLD = "GANTRY_COLD_STARTS"
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
ROOM_FOR_ARGUMENTS = 4096
ADOPTED_WITHIN_S = 60.0
POLL_S = 0.0005
LENGTH = struct.Struct("!I")

_LIBC = ctypes.CDLL(None, use_errno=True)
_cold_start = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_parameters = inspect.signature(_cold_start)


class Nursery:
    """The way to an interpreter that forks."""

    def __init__(self, way: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._way = way
        self._process = process
        self._one_at_a_time = threading.Lock()

    def fork(self, asked: dict[str, Any], descriptors: tuple[int, int, int]) -> int:
        """The pid of a child of this process that runs what is asked.

        Raises:
            OSError: the child could not begin, as with a directory that is not there.
        """
        told, teller = os.pipe()
        with self._one_at_a_time:
            _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                text = json.dumps(asked).encode()
                sent = [LENGTH.pack(len(text))]
                socket.send_fds(self._way, sent, [*descriptors, teller])
                os.close(teller)
                self._way.sendall(text)
                with os.fdopen(told, "rb") as answer:
                    said = answer.read()
                assert said, "a program ended before it began"
                pid, failed = json.loads(said)
            finally:
                _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if failed:
            os.waitpid(pid, 0)
            raise OSError(failed, os.strerror(failed), asked["directory"])
        return int(pid)

    def end(self) -> None:
        """It has no more to do."""
        self._way.close()
        if self._process is not None:
            self._process.wait()


_nursery: Nursery | None = None


def install() -> None:
    """From now on programs of the product start warm in this process and in those."""
    if sys.platform == "linux" and not os.environ.get(COLD):
        subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]


def uninstall() -> None:
    """As it was."""
    global _nursery
    subprocess.Popen._execute_child = _cold_start  # type: ignore[attr-defined]
    if _nursery is not None:
        _nursery.end()
    _nursery = None


@contextlib.contextmanager
def cold() -> Iterator[None]:
    """Every program has an interpreter of its own meanwhile."""
    usual = subprocess.Popen._execute_child  # type: ignore[attr-defined]
    subprocess.Popen._execute_child = _cold_start  # type: ignore[attr-defined]
    try:
        yield
    finally:
        subprocess.Popen._execute_child = usual  # type: ignore[attr-defined]


def _execute_child(self: subprocess.Popen[bytes], *args: Any) -> None:
    wish = _parameters.bind(self, *args).arguments
    if not _wanted(wish):
        _cold_start(self, *args)
        return
    asked = {
        "argv": [os.fspath(word) for word in wish["args"]],
        "env": dict(os.environ if wish["env"] is None else wish["env"]),
        "directory": os.fspath(wish["cwd"] or Path.cwd()),
        "session": wish["start_new_session"],
        "parent": os.getpid(),
    }
    ends = (wish["p2cread"], wish["c2pwrite"], wish["errwrite"])
    descriptors = [own if given == -1 else given for own, given in enumerate(ends)]
    self.pid = _own_nursery().fork(asked, (descriptors[0], descriptors[1], descriptors[2]))
    self._child_created = True  # type: ignore[attr-defined]
    self._close_pipe_fds(  # type: ignore[attr-defined]
        *(
            wish[name]
            for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        )
    )


def _wanted(wish: dict[str, Any]) -> bool:
    """Whether the program is the product's, and nothing is asked that only an exec can do."""
    usual = {
        "executable": None,
        "preexec_fn": None,
        "close_fds": True,
        "shell": False,
        "gid": None,
        "gids": None,
        "uid": None,
        "umask": -1,
        "process_group": -1,
    }
    if wish["pass_fds"] or any(wish[name] != value for name, value in usual.items()):
        return False
    words = wish["args"]
    if not isinstance(words, list | tuple) or _program(words) is None:
        return False
    env = os.environ if wish["env"] is None else wish["env"]
    return _interpreter(env) == _interpreter(os.environ)


def _interpreter(env: Any) -> dict[str, str]:
    """Variables that an interpreter reads at its start, and that could not be had afterwards."""
    names = {name for name in env if name.startswith("PYTHON")} - SEEN_TO
    return {name: env[name] for name in names}


def _program(argv: list[Any] | tuple[Any, ...]) -> tuple[list[str], str, list[str]] | None:
    """Options, module or file, arguments; None of what is not the product's."""
    words = [os.fspath(word) for word in argv]
    if words[0] != sys.executable:
        return None
    options = []
    while len(words) > 1 and words[1] in FLAGS:
        options.append(words.pop(1))
    match words[1:]:
        case ["-m", module, *arguments] if module in MODULES:
            return options, module, arguments
        case [file, *arguments] if file in FILES:
            return options, file, arguments
    return None


def _own_nursery() -> Nursery:
    global _nursery
    if _nursery is None:
        ours, its = socket.socketpair()
        code = f"import sys; sys.path.insert(0, {str(SUPPORT.parent)!r});"
        code += f"from support import warm_starts; warm_starts.main({its.fileno()})"
        command = [sys.executable, "-P", "-c", code, " " * ROOM_FOR_ARGUMENTS]
        with its:
            process = subprocess.Popen(command, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)
        _nursery = Nursery(ours, process)
    return _nursery


# What follows runs in the nursery, and in its children.


class _Exec(BaseException):
    """The program that this process is to become."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv


def main(descriptor: int) -> None:
    """Fork what is asked for until nobody asks any more; children run it."""
    sys.path.remove(str(SUPPORT.parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is meant for those that do something
    _warm()
    asked = _serve(socket.socket(fileno=descriptor))
    if asked is not None:
        _run(asked["argv"])


def _warm() -> None:
    gc.disable()
    import_module("gantry_local.daemon")
    for command in import_module("gantry_cli.main").COMMANDS:
        module, _, _ = command.target.partition(":")
        if module not in NOT_WARMED:
            import_module(module)
    gc.collect()
    gc.freeze()
    tasks = list(Path("/proc/self/task").iterdir())
    assert len(tasks) == 1, "a module of the product starts a thread when it is imported"


def _serve(way: socket.socket) -> dict[str, Any] | None:
    """What is asked, in a child; None in the nursery at its end."""
    while True:
        head, descriptors, _, _ = socket.recv_fds(way, LENGTH.size, 4)
        if len(head) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack(head)
        text = b""
        while len(text) < length:
            text += way.recv(length - len(text))
        middle = os.fork()
        if middle:
            for descriptor in descriptors:
                os.close(descriptor)
            os.waitpid(middle, 0)
            continue
        if os.fork():
            os._exit(0)
        asked: dict[str, Any] = json.loads(text)
        again = _begin(asked, descriptors)
        if again is None:
            return asked
        way = again  # a nursery for the process that this one was to be


def _begin(asked: dict[str, Any], descriptors: list[int]) -> socket.socket | None:
    """Be what was asked for; returns its way to who asks in the nursery of that process."""
    *ends, teller = descriptors
    deadline_s = time.monotonic() + ADOPTED_WITHIN_S
    while os.getppid() != asked["parent"]:
        if time.monotonic() > deadline_s:
            os._exit(1)
        time.sleep(POLL_S)
    try:
        os.chdir(asked["directory"])
    except OSError as error:
        os.write(teller, json.dumps([os.getpid(), error.errno or errno.EIO]).encode())
        os._exit(1)
    if asked["session"]:
        os.setsid()
    found = _program(asked["argv"])
    assert found is not None
    kept = None
    if any([found[1], *found[2]][: len(words)] == words for words in SPAWNERS):
        kept, its = socket.socketpair()
        if not os.fork():
            return _apart(its)
    for number, end in enumerate(ends):
        os.dup2(end, number)
    told = os.dup(teller)
    _close_all(told, kept)
    _settle(asked, kept)
    os.write(told, json.dumps([os.getpid(), 0]).encode())
    os.close(told)
    return None


def _apart(its: socket.socket) -> socket.socket:
    """Nothing of the process that this nursery serves is held open here."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    its = socket.socket(fileno=its.detach())
    _close_all(its.fileno())
    return its


def _close_all(*besides: int | socket.socket | None) -> None:
    kept = {one.fileno() if isinstance(one, socket.socket) else one for one in besides}
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):  # the list's own is closed already
                os.close(number)


def _settle(asked: dict[str, Any], kept: socket.socket | None) -> None:
    global _nursery
    _nursery = None if kept is None else Nursery(kept)
    if kept is not None:
        install()
    os.environ.clear()
    os.environ.update(asked["env"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unbuffered = bool(os.environ.get(UNBUFFERED))
    sys.stdin = sys.__stdin__ = _reader(sys.stdin)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _writer(1, sys.stdout, unbuffered)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2, sys.stderr, unbuffered)  # type: ignore[misc]
    gc.enable()


def _reader(last: Any) -> io.TextIOWrapper:
    """Standard input, read as the nursery would."""
    raw = os.fdopen(0, "rb", closefd=False)
    return io.TextIOWrapper(raw, encoding=last.encoding, errors=last.errors)


def _writer(number: int, last: Any, unbuffered: bool) -> io.TextIOWrapper:
    """A stream that writes like the nursery's."""
    raw = os.fdopen(number, "wb", 0 if unbuffered else -1, closefd=False)
    return io.TextIOWrapper(
        raw,
        encoding=last.encoding,
        errors=last.errors,
        line_buffering=not unbuffered and (number == 2 or os.isatty(number)),
        write_through=unbuffered,
    )


def _run(argv: list[str]) -> None:
    """Run a command line of the interpreter as the interpreter does."""
    found = _program(argv)
    assert found is not None
    options, program, arguments = found
    _name(argv)
    sys.orig_argv = list(argv)
    sys.argv = [program, *arguments]
    is_safe = not {"-P", "-I"}.isdisjoint(options) or bool(os.environ.get(SAFE_PATH))
    if program in MODULES:
        if not is_safe:
            sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    if not is_safe:
        sys.path.insert(0, str(Path(program).parent))
    if program != LAUNCHER:
        runpy.run_path(program, run_name="__main__")
        return
    os.execvp = _exec  # type: ignore[assignment]
    try:
        runpy.run_path(program, run_name="__main__")
        return
    except _Exec as found_exec:
        become = found_exec.argv
    finally:
        os.execvp = _execvp
    _run(become)


_execvp = os.execvp


def _exec(file: str, argv: list[str]) -> NoReturn:
    if _program(argv) is None:
        _execvp(file, argv)
    raise _Exec(argv)


def _name(argv: list[str]) -> None:
    """Show this command line in /proc, and so in `ps`."""
    fields = Path("/proc/self/stat").read_text("ascii").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = b"".join(os.fsencode(word) + b"\0" for word in argv)[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))
