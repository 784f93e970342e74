"""The log of a coordinator's process and its libraries, without secrets.

Everything that Python writes to the error stream goes through here: log records, warnings, and the
tracebacks of threads.
"""

from __future__ import annotations

import datetime
import io
import json
import logging
import sys
import time
from typing import TextIO

from paimon_magics.coordinator.protocol.request_id import CURRENT
from paimon_magics.redaction import redacted

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s%(request)s"


class _Redacting(io.TextIOBase):
    """A stream that passes texts on to another one without their secrets."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redacted(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()


class _TextFormatter(logging.Formatter):
    """A line with the time in UTC, and the request in whose course it is written."""

    converter = staticmethod(time.gmtime)
    default_msec_format = "%s,%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        current = CURRENT.get()
        parts = (f"request {current.id}", current.table) if current else ()
        record.request = f" [{', '.join(filter(None, parts))}]" if parts else ""
        return super().format(record)


class _JsonFormatter(logging.Formatter):
    """A line that is a JSON object: `time` (RFC 3339, UTC), `level`, `logger`, `message`, and where
    they are known `request`, `table` and `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        current = CURRENT.get()
        members = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "request": current.id if current else None,
            "table": (current.table if current else None) or None,
            "exception": self.formatException(record.exc_info) if record.exc_info else None,
        }
        known = {name: value for name, value in members.items() if value is not None}
        return json.dumps(known, ensure_ascii=False)


def keep_secrets_out_of_logs(form: str = "text") -> None:
    """Log warnings and errors of this process to its error stream, without secrets. `form` is
    "text" or "json"."""
    sys.stderr = _Redacting(sys.stderr)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter(_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
