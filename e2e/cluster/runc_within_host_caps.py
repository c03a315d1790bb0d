#!/usr/bin/python3
"""OCI runtime wrapper: runc, minus the capabilities that the host itself does not have.

`docker run --privileged` asks for every capability; where the host's bounding set lacks one, runc
fails with "unable to apply caps". This removes the missing ones from the bundle's config.json
(create, run) or the --process file (exec), lifts negative OOM scores (they need CAP_SYS_RESOURCE
too), and becomes runc.
"""

import json
import os
import re
import sys
from pathlib import Path

# In the order of their bits (capability.h).
CAPABILITIES = tuple(
    """
    chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable
    net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio
    sys_chroot sys_ptrace sys_pacct sys_admin sys_boot sys_nice sys_resource sys_time
    sys_tty_config mknod lease audit_write audit_control setfcap mac_override mac_admin syslog
    wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore
    """.split()  # noqa: SIM905 - forty literals would not be easier to compare
)


def missing_capabilities() -> set[str]:
    """Names (CAP_…) of the capabilities outside this host's bounding set."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"^CapBnd:\s*([0-9a-f]+)$", status, re.MULTILINE)
    bounding = int(found.group(1), 16) if found else 0
    return {
        f"CAP_{name.upper()}" for bit, name in enumerate(CAPABILITIES) if not bounding >> bit & 1
    }


def lower(process: dict, missing: set[str]) -> None:
    """Takes what the host cannot give out of one OCI process description."""
    sets = process.get("capabilities") or {}
    for name, values in sets.items():
        sets[name] = [value for value in values if value not in missing]
    if process.get("oomScoreAdj", 0) < 0:
        process["oomScoreAdj"] = 0


def option(arguments: list[str], *names: str) -> str | None:
    """The value of `--name VALUE` or `--name=VALUE`."""
    for position, argument in enumerate(arguments):
        if argument in names and position + 1 < len(arguments):
            return arguments[position + 1]
        for name in names:
            if argument.startswith(f"{name}="):
                return argument.partition("=")[2]
    return None


def rewrite(path: Path, *, whole_bundle: bool, missing: set[str]) -> None:
    """Lowers the process in a config.json (whole bundle) or in a process file."""
    document = json.loads(path.read_text(encoding="utf-8"))
    lower(document.get("process", {}) if whole_bundle else document, missing)
    path.write_text(json.dumps(document), encoding="utf-8")


def main() -> None:
    """Lower what was asked for, then become runc with the same arguments."""
    arguments = sys.argv[1:]
    missing = missing_capabilities()
    if "create" in arguments or "run" in arguments:
        bundle = option(arguments, "--bundle", "-b") or Path.cwd()
        rewrite(Path(bundle) / "config.json", whole_bundle=True, missing=missing)
    elif "exec" in arguments and (process := option(arguments, "--process", "-p")):
        rewrite(Path(process), whole_bundle=False, missing=missing)
    os.execvp("runc", ["runc", *arguments])


if __name__ == "__main__":
    main()
