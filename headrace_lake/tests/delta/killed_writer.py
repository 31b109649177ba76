"""A writer of partitions, as a process that is killed: `python -m ... FOLDER SEED PARTITION...`

It goes on from what the table says, commits batches of any size, and drops what another writer has
committed meanwhile, as the service does.
"""

import random
import sys
import uuid

from headrace_lake.delta.batch_commits import commit_batch
from headrace_lake.delta.compaction import compact
from headrace_lake.delta.data_files import RowFiles
from headrace_lake.protocol.attempts import TableBatch
from headrace_lake.protocol.progress import LakeProgress
from headrace_lake.tests.lake_tables import PLAIN, opened, plain_rows
from storage_engine.core.ids import LeaderEpoch


def main(folder: str, seed: str, *partitions: str) -> None:
    chance = random.Random(seed)
    table = opened(folder)
    upkeep = opened(folder)
    while True:
        starts, ends = {}, {}
        base_version = table.version
        files = RowFiles(table.store, PLAIN.row_schema, order=base_version + 1)
        for partition in map(int, partitions):
            start = table.progress([partition]).get(partition)
            first = start.end_offset if start else 0
            end = first + chance.randint(1, 50)
            files.write(plain_rows(first, end, partition))
            starts[partition] = start
            ends[partition] = LakeProgress(end_offset=end, leader_epoch=LeaderEpoch(0))
        batch = TableBatch(
            commit_id=uuid.uuid4().hex, base_version=base_version, starts=starts, ends=ends
        )
        commit_batch(table, batch, files.finish())
        if chance.random() < 0.2:
            compact(upkeep, 20_000)


if __name__ == "__main__":
    main(*sys.argv[1:])
