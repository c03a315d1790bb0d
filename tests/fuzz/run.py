"""Fuzzes one target by coverage: ``run.py NAME [libFuzzer's options and folders]``.

Run by ``make fuzz`` with atheris on the path; the project's code is instrumented as it is imported.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gantry_protocol", "gantry_controller"]):
    from support.fuzz_seeds import seeds
    from support.fuzz_targets import TARGETS


def main() -> None:
    name, *options = sys.argv[1:]
    folder = Path(next(option for option in options if not option.startswith("-")))
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()[name]):
        (folder / f"seed-{number}").write_bytes(seed)
    atheris.Setup([sys.argv[0], *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
