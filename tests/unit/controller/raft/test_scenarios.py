"""Stories in testdata/: interleavings worth reading, with everything the cores do in them.

``GANTRY_REWRITE=1`` writes the traces anew; review the diff line by line.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.raft_scenario import check

STORIES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    check(path, rewrite=bool(os.environ.get("GANTRY_REWRITE")))


def test_there_are_stories() -> None:
    assert len(STORIES) >= 10
