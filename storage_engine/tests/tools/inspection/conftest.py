"""A segment in a folder of its own."""

from pathlib import Path

import pytest

from storage_engine.tests.tools.inspection.segments import Segment


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment(tmp_path)
