"""Restores the state machine of a coordinator from its log, a piece in each turn of the loop."""

from collections.abc import Callable, Generator
from typing import Generic

from storage_engine.broker.coordinators.state_load import ContentT, StateCodec, StateLoad
from storage_engine.broker.coordinators.state_machine import (
    AnswerT,
    Core,
    Effects,
    EffectT,
    EventT,
    RunnerPorts,
    now,
)
from storage_engine.core.coordinator_log import EntryT
from storage_engine.log.partition_log import PartitionLog


class StateRestore(Generic[EventT, AnswerT, EffectT, EntryT, ContentT]):
    """Restores the state once. `on_restored` or `on_failed` is called once, unless it is over or
    cancelled before."""

    def __init__(
        self,
        log: PartitionLog,
        load_codec: Callable[[], StateCodec[EntryT, ContentT]],
        new_core: Callable[[], Core[EventT, AnswerT, EffectT, EntryT, ContentT]],
        ports: RunnerPorts,
        *,
        is_over: Callable[[], bool],
        on_restored: Callable[
            [
                StateCodec[EntryT, ContentT],
                Core[EventT, AnswerT, EffectT, EntryT, ContentT],
                Effects[EntryT, AnswerT, EffectT],
                int,
            ],
            None,
        ],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`on_restored` gets codec, state machine, the effects of its beginning, and the number of
        keys. `is_over`: whether nobody wants the state any more; asked before each piece."""
        self.log = log
        self._new_core = new_core
        self._ports = ports
        self._is_over = is_over
        self._on_restored = on_restored
        self._on_failed = on_failed
        self._load = StateLoad(
            log, load_codec, ports.background, on_loaded=self._loaded, on_failed=on_failed
        )
        self.end_offset = self._load.end_offset
        """The end offset of the load, exclusive."""

    def start(self) -> None:
        self._load.start()

    def cancel(self) -> None:
        self._load.cancel()

    def _loaded(self, codec: StateCodec[EntryT, ContentT], content: ContentT) -> None:
        if self._is_over():
            return
        core = self._new_core()
        steps = core.restore(content, now(self._ports.clock))
        self._restore_some(codec, core, steps, len(content))

    def _restore_some(
        self,
        codec: StateCodec[EntryT, ContentT],
        core: Core[EventT, AnswerT, EffectT, EntryT, ContentT],
        steps: Generator[None, None, Effects[EntryT, AnswerT, EffectT]],
        keys: int,
    ) -> None:
        if self._is_over():
            return
        try:
            next(steps)
        except StopIteration as end:
            self._on_restored(codec, core, end.value, keys)
        except Exception as failure:  # noqa: BLE001 - told with its trace by who reads again
            self._on_failed(failure)
        else:
            self._ports.scheduler.call_soon(lambda: self._restore_some(codec, core, steps, keys))
