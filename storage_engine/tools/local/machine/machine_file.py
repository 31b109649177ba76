"""`machine.json`: the layout of a machine's brokers, which other programs may read. It is written
whole or not at all.
"""

import json
from dataclasses import asdict
from pathlib import Path

from storage_engine.tools.document import Json
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.cluster_file import Fields, MalformedError
from storage_engine.tools.local.cluster_plan import MAX_BROKERS
from storage_engine.tools.local.free_ports import HIGHEST_PORT
from storage_engine.tools.local.machine.layout import HIGHEST_ID, MachineBroker, MachineLayout
from storage_engine.tools.local.secret_files import write_whole

FILE_NAME = "machine.json"
VERSION = 1


def exists(directory: Path) -> bool:
    return (directory / FILE_NAME).exists()


def read(directory: Path) -> MachineLayout:
    """CommandError when there is none, or it is damaged or foreign."""
    path = directory / FILE_NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return _parse(document)
    except FileNotFoundError:
        raise CommandError(
            f"there is no machine in '{directory}' (no {FILE_NAME}); lay one out with: "
            f"headrace machine init --dir {directory} …"
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError):
        problem = "it is not JSON"
    except MalformedError as error:
        problem = str(error)
    raise CommandError(
        f"'{path}' is not a file that 'headrace machine init' wrote: {problem}; restore it from a "
        "backup, or remove it and give 'headrace machine init' the options of before"
    )


def write(directory: Path, layout: MachineLayout) -> None:
    document = {"version": VERSION, **asdict(layout)}
    document["bootstrap_servers"] = layout.bootstrap_servers
    text = json.dumps(document, indent=2) + "\n"
    write_whole(directory / FILE_NAME, text.encode(), mode=0o644)


def _parse(document: Json) -> MachineLayout:
    fields = Fields(document, "")
    if fields.integer("version", 1, HIGHEST_ID) > VERSION:
        raise MalformedError("a later version of Headrace wrote it")
    brokers = tuple(
        _parse_broker(Fields(item, f"brokers[{i}]"))
        for i, item in enumerate(fields.items("brokers"))
    )
    for name in ("id", "port"):
        if len({getattr(broker, name) for broker in brokers}) < len(brokers):
            raise MalformedError(f"two brokers have the same {name}")
    return MachineLayout(
        host=fields.text("host"),
        rack=fields.text_or_none("rack"),
        zookeeper=fields.text("zookeeper"),
        machines=fields.integer("machines", 1, HIGHEST_ID),
        first_id=fields.integer("first_id", 0, HIGHEST_ID),
        base_port=fields.integer("base_port", 1, HIGHEST_PORT),
        disks=fields.texts("disks"),
        memory_mib=fields.integer("memory_mib", 1, HIGHEST_ID),
        has_shared_disks=fields.boolean("has_shared_disks"),
        has_shared_cores=fields.boolean("has_shared_cores"),
        run_as=fields.text("run_as"),
        has_user_units=fields.boolean("has_user_units"),
        brokers=brokers,
    )


def _parse_broker(fields: Fields) -> MachineBroker:
    return MachineBroker(
        id=fields.integer("id", 0, HIGHEST_ID),
        port=fields.integer("port", 1, HIGHEST_PORT),
        cpu=fields.integer("cpu", 0, MAX_BROKERS * 100),
        log_dirs=fields.texts("log_dirs"),
    )
