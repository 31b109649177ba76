"""The echo servers that stand for the wire's limit answer as a broker would."""

import shutil

import pytest

from benchmarks.support.wire_echo import compiled_echo, python_echo
from benchmarks.support.wire_frames import produce_frames
from benchmarks.support.wire_load import Endpoint, Worker, produce

FRAMES = produce_frames("topic", 1024, 8, seed=3)


@pytest.mark.parametrize("connections", [1, 3])
def test_the_echo_in_c_answers_every_request(tmp_path, connections):
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    with compiled_echo(tmp_path, FRAMES.answer) as echo:
        assert echo is not None
        assert produce(None, Endpoint(echo.port), FRAMES, connections, 4, 500) > 0


def test_the_echo_in_python_answers_every_request():
    with Worker() as worker, python_echo(worker, FRAMES) as echo:
        assert produce(None, Endpoint(echo.port), FRAMES, 1, 4, 500) > 0
