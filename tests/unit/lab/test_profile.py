"""Which part of a broker a sample of py-spy belongs to."""

from __future__ import annotations

from gantry_lab.measure.profile import REST, shares


def test_a_sample_belongs_to_the_innermost_code_of_ours() -> None:
    raw = [
        "main (gantry_cli/main.py:1);take (gantry_broker/clients/send.py:9);join (str.py:3) 6",
        "main (gantry_cli/main.py:1);pull (gantry_broker/clients/pull.py:9) 1",
        "run (threading.py:1);sync (gantry_broker/log/segment.py:70) 2",
        "run (asyncio/runners.py:1) 1",
    ]
    assert shares(raw) == {
        "sends and other requests: checks, properties, the answer": 60.0,
        "log: places of records, writing and reading them, syncs": 20.0,
        "pulls: checks, what is held, the answer": 10.0,
        REST: 10.0,
    }
