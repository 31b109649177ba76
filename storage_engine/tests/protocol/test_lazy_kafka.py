"""kafka-python's clients are loaded by whoever asks for them, not by the messages of the APIs."""

import subprocess
import sys

import pytest

MESSAGES = "import storage_engine.protocol.apis.join_group\n"


def run(program: str) -> str:
    """What a fresh process prints."""
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120
    ).stdout


def test_the_messages_of_the_apis_load_no_client():
    assert run(f"import sys\n{MESSAGES}print('kafka.producer' in sys.modules)") == "False\n"


@pytest.mark.parametrize(
    "program",
    [
        "import kafka; print(kafka.KafkaProducer.__name__, kafka.__version__[:2])",
        "from kafka import errors, KafkaProducer; print(KafkaProducer.__name__, '3.')",
        "from kafka import *; print(KafkaProducer.__name__, '3.')",
        "import kafka.consumer; from kafka import KafkaProducer as P; print(P.__name__, '3.')",
        "import kafka; print(kafka.producer.KafkaProducer.__name__, '3.', end=chr(10))",
    ],
)
def test_whoever_asks_for_a_client_gets_it(program):
    assert run(MESSAGES + program) == "KafkaProducer 3.\n"


def test_a_name_that_the_package_does_not_have_is_an_attribute_error():
    program = "import kafka\nprint(hasattr(kafka, 'nothing'), hasattr(kafka, '__wrapped__'))"
    assert run(MESSAGES + program) == "False False\n"


def test_a_package_that_was_imported_before_stays_as_it_is():
    program = f"import kafka\n{MESSAGES}print('__getattr__' in vars(kafka))"
    assert run(program) == "False\n"
