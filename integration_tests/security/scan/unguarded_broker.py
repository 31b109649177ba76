"""A broker that leaves all guards out, and lets everybody read, write and create: what a mistake in
the table, or in one of the five places beside it, would make of it."""

from collections.abc import Collection
from typing import Any

from storage_engine.broker.guards import table
from storage_engine.broker.wiring.access import AccessParts
from storage_engine.core.errors import ErrorCode
from storage_engine.tools.cli import main


def _unguarded(_parts: Any, _spec: Any, handler: Any) -> Any:
    return handler


def _nothing_unreadable(*_: Any) -> Collection[str]:
    return ()


def _nothing_lost(*_: Any) -> ErrorCode:
    return ErrorCode.NONE


def _yes(*_: Any) -> bool:
    return True


if __name__ == "__main__":
    rules: Any = table
    rules.guarded = _unguarded
    parts: Any = AccessParts
    parts.unreadable = _nothing_unreadable
    parts.may_create = parts.may_act_as_broker = _yes
    parts.may_still_write = _nothing_lost
    raise SystemExit(main())
