"""Writes from threads other than the one that built the session.

`df.write` looks for a format that is written in Python in the session that is *active in the
thread*, whatever session the frame is of; `spark.read` and streaming queries make theirs active. A
thread that Python starts has none: its counterpart in the JVM does not descend from that of the
thread which started it. Spark then says DATA_SOURCE_NOT_FOUND.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

P = ParamSpec("P")
T = TypeVar("T")


def in_session(spark: "SparkSession", function: Callable[P, T]) -> Callable[P, T]:
    """`function`, for another thread: while it runs there, `spark` is the thread's active session,
    and the thread has the local properties (job group, pool, streaming query) that the calling
    thread has now.

        pool.submit(in_session(spark, write), part)

    Within `foreachBatch`, give the session of the frame: `in_session(frame.sparkSession, write)`.
    With Spark Connect it returns `function`, which needs nothing of this.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return function
    context: JavaObject = spark.sparkContext._jsc.sc()
    properties = context.getLocalProperties().clone()

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        # A copy for each call: Spark writes into what a thread has.
        with _session(spark), _local_properties(context, properties.clone()):
            return function(*args, **kwargs)

    return run


@contextmanager
def _session(spark: "SparkSession") -> Iterator[None]:
    """Set the thread's active session, then restore the former one: pools reuse threads."""
    sessions = getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextmanager
def _local_properties(context: "JavaObject", properties: "JavaObject") -> Iterator[None]:
    before = context.getLocalProperties()
    context.setLocalProperties(properties)
    try:
        yield
    finally:
        context.setLocalProperties(before)
