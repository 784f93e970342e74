"""What each option of a stream is for, in a line; docs/streams.md has more."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["STREAM_PURPOSES"]

STREAM_PURPOSES: Mapping[str, str] = {
    "scan.mode": "where a new stream begins: latest-full (all rows, then changes), latest, …",
    "scan.snapshot-id": "begin with the changes of this snapshot",
    "scan.timestamp-millis": "begin with the changes since this moment, in milliseconds since 1970",
    "scan.timestamp": "begin with the changes since this time of the session's zone",
    "consumer-id": "a name under which the table keeps how far the stream is, and its snapshots",
    "consumer.ignore-progress": "begin where scan.mode says, though the consumer is known",
    "consumer.mode": "accepted; both modes are exact here",
    "read.stream.maxSnapshotsPerTrigger": "snapshots in a micro-batch, at most",
    "read.stream.maxRowsPerTrigger": "rows in a micro-batch, at most",
    "read.stream.maxFilesPerTrigger": "data files in a micro-batch, at most",
    "read.stream.maxBytesPerTrigger": "bytes of data files in a micro-batch, at most: 64 mb",
    "read.stream.minRowsPerTrigger": "wait for so many rows",
    "read.stream.maxTriggerDelayMs": "but no longer than so many milliseconds",
    "branch": "the branch that is read",
    "source.split.target-size": "bytes that one task reads",
    "source.split.open-file-cost": "bytes that opening a file counts as",
}
"""By option, in the order of the documentation."""
