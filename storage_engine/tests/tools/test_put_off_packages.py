"""Each case in a process of its own, since this one has imported kafka-python."""

import subprocess
import sys
from pathlib import Path

import pytest


def output_of(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.split()


def test_schemas_come_without_the_clients() -> None:
    program = (
        "import sys\n"
        "from storage_engine.tools.put_off_packages import load_only_when_asked\n"
        "load_only_when_asked()\n"
        "from storage_engine.protocol.apis import create_topics, offset_commit\n"
        "loaded = [name for name in sys.modules if name.startswith('kafka.')]\n"
        "print('kafka.protocol.admin.topics' in loaded, 'kafka.consumer.group' in loaded)"
    )
    assert output_of(program) == ["True", "False"]


def test_clients_are_there_for_whoever_asks() -> None:
    program = (
        "from storage_engine.tools.put_off_packages import load_only_when_asked\n"
        "load_only_when_asked()\n"
        "from storage_engine.protocol.apis import create_topics\n"
        "import kafka, kafka.consumer\n"
        "from kafka import KafkaConsumer, TopicPartition\n"
        "assert kafka.KafkaConsumer is KafkaConsumer is kafka.consumer.KafkaConsumer\n"
        "assert kafka.protocol.admin and kafka.errors.KafkaError\n"
        "print(KafkaConsumer.__name__, type(kafka).__name__, hasattr(kafka, 'nonsense'))"
    )
    assert output_of(program) == ["KafkaConsumer", "module", "False"]


def test_a_package_that_can_not_be_loaded_says_so_each_time(tmp_path: Path) -> None:
    package = tmp_path / "kafka"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('broken')")
    (package / "part.py").write_text("")
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from storage_engine.tools.put_off_packages import load_only_when_asked\n"
        "load_only_when_asked()\n"
        "import kafka.part\n"
        "for _ in range(2):\n"
        "    try:\n"
        "        kafka.KafkaConsumer\n"
        "    except RuntimeError as error:\n"
        "        print(error)"
    )
    assert output_of(program) == ["broken", "broken"]


def test_a_package_that_is_loaded_stays_as_it_is() -> None:
    program = (
        "import kafka\n"
        "from storage_engine.tools.put_off_packages import load_only_when_asked\n"
        "load_only_when_asked()\n"
        "print(type(kafka).__name__)"
    )
    assert output_of(program) == ["module"]


def test_the_checksum_comes_without_the_rest_of_its_package() -> None:
    program = (
        "import sys\n"
        "from storage_engine.tools.put_off_packages import load_only_when_asked\n"
        "load_only_when_asked()\n"
        "from crc32c import crc32c\n"
        "print(crc32c(b'123456789'), 'crc32c._cli' in sys.modules)\n"
        "import crc32c as package\n"
        "print(package.__version__ > '2', package.crc32c is crc32c, type(package).__name__)"
    )
    assert output_of(program) == ["3808858755", "False", "True", "True", "module"]


@pytest.mark.parametrize("asked", ["kafka.KafkaConsumer", "crc32c.hardware_based"])
def test_threads_that_ask_at_once_all_get_it(asked: str) -> None:
    package, _, name = asked.partition(".")
    program = (
        "import threading\n"
        "from storage_engine.tools.put_off_packages import load_only_when_asked\n"
        "load_only_when_asked()\n"
        f"import {package} as package\n"
        "start, found = threading.Barrier(4), []\n"
        "def ask():\n"
        "    start.wait()\n"
        f"    found.append(hasattr(package, {name!r}))\n"
        "threads = [threading.Thread(target=ask) for _ in range(4)]\n"
        "for thread in threads:\n"
        "    thread.start()\n"
        "for thread in threads:\n"
        "    thread.join()\n"
        "print(*found)"
    )
    assert output_of(program) == ["True"] * 4
