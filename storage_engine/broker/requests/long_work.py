"""Handles requests whose work is too long for one turn of the event loop.

    few items    decoded, handled and encoded within the turn in which the request came
    many items   decoded by a thread -> handled in steps, a slice a turn -> encoded by a thread

Such a request never holds the loop for longer than a slice, however much it names. The next request
of the connection waits until it is done; other connections go on. Principals take turns, then the
addresses and connections of each, at the thread, at being decoded and at the slices; brokers that
are allowed to act as such come before all. The broker may change between two steps, so each step
checks its own conditions. Source: R-NET1, R-NET3.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Protocol

from storage_engine.broker.shared_threads import Result, SharedThreads
from storage_engine.core.fair_queue import FIRST, FairQueue, Share
from storage_engine.core.ports import Background, Scheduler

INLINE_ITEMS = 500
"""The most items in all lists of a request that is decoded in its turn: two milliseconds."""

REQUEST_ITEMS_MAX = 100_000
"""The most items in all lists of a client's request: work on all of them in one go, such as a copy
of a list, stays far below a turn's share. Orders of a controller may have more."""

INLINE_BYTES = 1 << 20
"""The largest request, other than Produce, that is decoded in its turn: its strings are copied."""

INLINE_NS = 2_000_000
"""The time that a request may use in the turn in which it arrived."""

SLICE_NS = 4_000_000
"""The time that all long work together may use in each turn."""

RUNNING_MAX = 8
"""The most decoded requests that are worked on in turns; others wait undecoded."""

RUNNING_EACH_MAX = 6
"""The most of them of one principal: other principals need not wait for all of its long ones."""

URGENT_MAX = 64
"""The most requests of brokers that do not wait for clients' requests to be done."""

Steps = Generator[Callable[[], Any] | None, Any, None]
"""Work that may be interrupted where it yields. It yields None, or a function to run beside the
loop, whose result (or error) the yield returns (or raises)."""


class Metered(Protocol):
    """A quota of processor time."""

    def worked(self, ns: int) -> None: ...


class LongRequest(Protocol):
    """A request with long work, as this module needs it: an `ApiCall`."""

    def hold(self) -> None:
        """Stop reading requests of this connection until `release`."""
        ...

    def release(self) -> None: ...

    def failed(self, error: Exception) -> None:
        """Called with the error of the work, which has ended."""
        ...

    @property
    def quota(self) -> "Metered | None":
        """The quota that counts the time of its work; None where none does."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether the client is gone, so that the answer is not needed."""
        ...

    is_long: bool
    """Whether encoding the answer may take long, too."""

    @property
    def share(self) -> Share:
        """The share whose turn it uses."""
        ...


class _Job:
    __slots__ = ("_share", "end", "error", "request", "size", "steps", "value")

    def __init__(
        self,
        request: LongRequest,
        steps: Steps,
        share: Share | None = None,
        *,
        size: int = 1,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """`share`: the request's by default. `end`: called at the end of the work, to free its
        place."""
        self.request = request
        self._share = share
        self.steps = steps
        self.size = size
        self.end = end
        # The result of the present yield, or the error that it raises.
        self.value: Any = None
        self.error: Exception | None = None

    @property
    def share(self) -> Share:
        """The share whose turn it uses, fixed when it is first needed."""
        if self._share is None:
            self._share = self.request.share
        return self._share


class LongWork:
    """The long work of one broker."""

    def __init__(
        self, scheduler: Scheduler, background: Background, work_ns: Callable[[], int]
    ) -> None:
        """`work_ns`: a clock in nanoseconds that bounds a slice."""
        self._scheduler = scheduler
        # One thread, so that the loop shares the interpreter with only one.
        self._thread = SharedThreads(background, at_once=1)
        self.work_ns = work_ns
        self._running: FairQueue[_Job] = FairQueue()
        self._admitted = self._urgent = 0
        """The requests under way that were admitted from `_waiting`, and the urgent ones of
        brokers. Short requests are not counted, however long their work takes."""
        self._waiting: FairQueue[tuple[LongRequest, Callable[[], Steps], int]] = FairQueue(
            RUNNING_EACH_MAX
        )
        """Requests that are not decoded yet, with their sizes in bytes."""
        self._is_scheduled = False

    def run(self, request: LongRequest, steps: Steps, begun_ns: int | None = None) -> None:
        """Do the steps of a request whose client is there: now, and in later turns if they take too
        long. `begun_ns`: the time when work for the request began in this turn; now, by default."""
        job = _Job(request, steps)
        if self._advance(job, INLINE_NS, begun_ns):
            request.is_long = True
            request.hold()
            self._go_on(job)

    def run_later(self, request: LongRequest, begin: Callable[[], Steps], *, size: int = 1) -> None:
        """Work on an undecoded request when it is its turn. `size`: its bytes."""
        request.is_long = True
        request.hold()
        share = request.share
        if share[0] is FIRST and self._urgent < URGENT_MAX:
            self._urgent += 1
            self._go_on(_Job(request, begin(), share, size=size, end=self._end_urgent))
        else:
            self._waiting.put(share, (request, begin, size), size)
            self._admit()

    def beside(
        self,
        share: Share,
        work: Callable[[], Result],
        done: Callable[[Result | None, Exception | None], None],
        *,
        size: int = 1,
        more: Callable[[Result], int] = lambda _result: 0,
    ) -> None:
        """Run `work` in the background thread when it is the turn of its share. `size`: its bytes
        as far as they are known; `more`: the bytes known from the result."""
        self._thread.submit(
            share,
            partial(_outcome, work),
            lambda outcome: done(*outcome),
            lambda error: done(None, error),
            size=size,
            more=lambda outcome: more(outcome[0]) if outcome[1] is None else 0,
        )

    def _admit(self) -> None:
        while self._admitted < RUNNING_MAX:
            taken = self._waiting.take()
            if taken is None:
                return
            share, (request, begin, size) = taken
            if request.is_gone:
                self._waiting.done(share)
                request.release()
                continue
            self._admitted += 1
            end = partial(self._end_admitted, share)
            self._go_on(_Job(request, begin(), share, size=size, end=end))

    def _end_urgent(self) -> None:
        self._urgent -= 1

    def _end_admitted(self, share: Share) -> None:
        self._admitted -= 1
        self._waiting.done(share)
        self._admit()

    def _go_on(self, job: _Job) -> None:
        self._running.put(job.share, job)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.call_soon(self._slice)

    def _slice(self) -> None:
        """Use one turn's time for one job; the next turn is for the next job."""
        self._is_scheduled = False
        taken = self._running.take()
        if taken is not None:
            share, job = taken
            self._running.done(share)
            if self._advance(job, SLICE_NS, is_admitted=True):
                self._running.put(share, job)
        if self._running and not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.call_soon(self._slice)

    def _advance(
        self, job: _Job, most_ns: int, begun_ns: int | None = None, *, is_admitted: bool = False
    ) -> bool:
        """Do some steps; return whether the loop has to do more."""
        work_ns = self.work_ns
        started_ns = work_ns() if begun_ns is None else begun_ns
        end_ns = started_ns + most_ns
        steps = job.steps
        try:
            # Whoever calls `run` has seen that the client is there.
            is_gone = is_admitted and job.request.is_gone
            while not is_gone:
                error, job.error = job.error, None
                value, job.value = job.value, None
                wanted = steps.throw(error) if error is not None else steps.send(value)
                if wanted is not None:
                    if not is_admitted:
                        job.request.hold()
                    on_result = partial(self._on_result, job)
                    self.beside(job.share, wanted, on_result, size=job.size)
                    return False
                if work_ns() >= end_ns:
                    return True
                is_gone = job.request.is_gone
            steps.close()
        except StopIteration:
            pass
        except Exception as failure:  # noqa: BLE001 - logged with its trace where the connection is closed
            job.request.failed(failure)
        finally:
            if (quota := job.request.quota) is not None:
                quota.worked(work_ns() - started_ns)
        if is_admitted:
            job.request.release()
            job.end()
        return False

    def _on_result(self, job: _Job, value: Any, error: Exception | None) -> None:
        job.value, job.error = value, error
        self._go_on(job)


def _outcome(work: Callable[[], Result]) -> tuple[Result, None] | tuple[None, Exception]:
    """The result of `work`, or the error that it raises, whatever it is."""
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001 - raised again at the step that waits for it
        return None, error
