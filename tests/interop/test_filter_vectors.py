"""What RocketMQ's own parser of filters says, asked again: the vectors of the unit tests are its.

``GANTRY_REWRITE=1`` writes its answers to the expressions of the file anew; review the diff.
"""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest
from support import java

VECTORS = java.INTEROP.parent / "unit/broker/clients/core/testdata/sql92.json"

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(600),
]


def word(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_the_vectors_are_what_upstreams_parser_says(tmp_path: Path) -> None:
    vectors = json.loads(VECTORS.read_text("utf-8"))
    messages = "\t".join(
        ",".join(f"{word(name)}:{word(value)}" for name, value in properties.items())
        for properties in vectors["properties"]
    )
    asked = tmp_path / "asked.txt"
    asked.write_text("".join(f"{word(source)}\t{messages}\n" for source in vectors["filters"]))
    program = java.INTEROP / "filters/Filters.java"
    command = ["java", *java.SHORT_LIVED, "-cp", java.proxy(), str(program), str(asked)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    answers = dict(zip(vectors["filters"], said, strict=True))
    if os.environ.get("GANTRY_REWRITE"):
        parts = [
            f'"source": {json.dumps(vectors["source"])}',
            '"properties": [\n' + ",\n".join(map(json.dumps, vectors["properties"])) + "\n]",
            '"filters": {\n'
            + ",\n".join(f"{json.dumps(one)}: {json.dumps(it)}" for one, it in answers.items())
            + "\n}",
        ]
        VECTORS.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")
    assert answers == vectors["filters"]
