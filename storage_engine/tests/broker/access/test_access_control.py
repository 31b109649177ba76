"""The log of refusals."""

import logging

from storage_engine.broker.access.access_control import AUDIT_LOGGER, NAMED_MAX
from storage_engine.protocol.apis.metadata import API, MetadataRequest
from storage_engine.tests.broker.guards.guarded_cluster import BOB, allow_only, come_as


def test_denials_are_logged_in_one_short_line_that_no_name_can_break(cluster, caplog) -> None:
    allow_only(cluster, [])
    come_as(cluster, BOB)
    caplog.set_level(logging.INFO, logger=AUDIT_LOGGER)
    names = ["a\nb", "x" * 30_000, *(f"t{number}" for number in range(50))]
    cluster.answer(cluster.ask(1, API, 12, MetadataRequest(topics=names)))
    (line,) = [record.getMessage() for record in caplog.records if record.name == AUDIT_LOGGER]
    assert line.startswith(
        "denied principal=User:bob host=simulated-0 operation=Describe resource=Topic:a\\nb,xxx"
    )
    assert line.endswith(
        f"x,t0,t1,t2,t3,t4,t5,t6,t7 and {len(names) - NAMED_MAX} more request=Metadata"
    )
    assert "\n" not in line
    assert len(line) < 500
