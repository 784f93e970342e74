"""An interrupt in the middle of what Spark does for a statement, which `cancellable` makes one."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest
from pyspark.sql import SparkSession

from paimon_magics.spark.queries import cancellable

pytestmark = pytest.mark.spark


@contextlib.contextmanager
def handled(handler: signal.Handlers | object) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_py4j_logs_no_trace_if_jvm_closed_interrupted_connection(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """The job, cancelled by a thread of its own, may end before py4j closes the interrupted
    connection, which it then can't: it logs that by another logger than the interrupt."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        connection = spark.sparkContext._gateway._gateway_client.get_thread_connection()
        connection.socket.shutdown(socket.SHUT_WR)
        raise KeyboardInterrupt

    def press() -> None:
        time.sleep(0.5)
        signal.raise_signal(signal.SIGINT)

    with handled(interrupt), caplog.at_level(logging.ERROR):
        before = len(caplog.records)
        presser = threading.Thread(target=press)
        presser.start()
        with pytest.raises(KeyboardInterrupt), cancellable(spark):
            spark._jvm.java.lang.Thread.sleep(5_000)
        presser.join()
    assert [record.getMessage() for record in caplog.records[before:]] == []
    assert spark.range(3).count() == 3, "the session goes on with a connection of its own"
