"""Posts of a query's progress."""

import json
import uuid
from typing import Any

from headrace_console.queries.progress_post import parse_post

QUERY = str(uuid.UUID(int=1))


def event(**more: Any) -> dict[str, Any]:
    run = more.pop("run", 1)
    return {
        "kind": "progress",
        "at_ms": 5,
        "query": {"id": more.pop("id", QUERY), "run_id": str(uuid.UUID(int=run)), "name": "q"},
        "progress": {
            "batchId": 3,
            "numInputRows": 10,
            "inputRowsPerSecond": 5.0,
            "processedRowsPerSecond": "NaN",
            "durationMs": {"addBatch": 12, "triggerExecution": 20},
            "sources": [{"description": "x" * 5_000, "endOffset": {"t": {"0": 1}}}],
            "sink": {"description": "s"},
        },
        **more,
    }


def parsed(*events: Any, **more: Any) -> list:
    return parse_post(json.dumps({"format": 1, "events": list(events), **more}).encode())
