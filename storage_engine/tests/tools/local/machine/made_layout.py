"""Layouts for tests."""

from storage_engine.tools.local.machine.layout import LayoutRequest, MachineLayout, plan_layout

CPUS = range(16)
MEMORY_MIB = 56 << 10
DIRECTORY = "/var/lib/headrace"
NEW = LayoutRequest(
    host="h1",
    cores=14,
    disks=("/d1", "/d2", "/d3", "/d4"),
    zookeeper="h1:2181,h2:2181,h3:2181",
)


def laid_out(
    request: LayoutRequest, existing: MachineLayout | None = None, *, cpus: range = CPUS
) -> MachineLayout:
    return plan_layout(
        existing, request, directory=DIRECTORY, cpus=cpus, memory_mib=MEMORY_MIB, user="headrace"
    )
