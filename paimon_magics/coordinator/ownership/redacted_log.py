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

from paimon_magics.coordinator.protocol.errors import CURRENT
from paimon_magics.redaction import redacted

_PROCESS = "paimon_magics.coordinator.process"
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


class _JsonLines(_Redacting):
    """Passes on each line as a JSON object: what is printed, as errors and tracebacks are."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(str.strip, lines):
            super().write(_json_line(time.time(), "ERROR", "stderr", line) + "\n")
        return len(text)


class _TextFormatter(logging.Formatter):
    """A line with the time in UTC, the request in whose course it is written, and the table."""

    converter = staticmethod(time.gmtime)
    default_msec_format = "%s,%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        current = CURRENT.get()
        parts = (current.id and f"request {current.id}", current.table) if current else ()
        shown = ", ".join(filter(None, parts))
        record.request = f" [{shown}]" if shown else ""
        return super().format(record)


class _JsonFormatter(logging.Formatter):
    """A line that is a JSON object: `time` (RFC 3339, UTC), `level`, `logger`, `message`, and where
    they are known `request`, `table` and `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        current = CURRENT.get()
        return _json_line(
            record.created,
            record.levelname,
            record.name,
            record.getMessage(),
            request=(current.id if current else None) or None,
            table=(current.table if current else None) or None,
            exception=self.formatException(record.exc_info) if record.exc_info else None,
        )


def _json_line(seconds: float, level: str, logger: str, message: str, **members: str | None) -> str:
    """A line of the log, as of `seconds` since 1970, with those members that are not None."""
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    known = {name: value for name, value in members.items() if value is not None}
    line = {
        "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": level,
        "logger": logger,
        "message": message,
        **known,
    }
    return json.dumps(line, ensure_ascii=False)


def keep_secrets_out_of_logs(form: str = "text") -> None:
    """Log warnings, errors, starts and takeovers of this process to its error stream, without
    secrets. `form` is "text" or "json"; then each line of that stream is a JSON object."""
    is_json = form == "json"
    handler = logging.StreamHandler(_Redacting(sys.stderr))
    handler.setFormatter(_JsonFormatter() if is_json else _TextFormatter(_FORMAT))
    sys.stderr = _JsonLines(sys.stderr) if is_json else _Redacting(sys.stderr)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger(_PROCESS).setLevel(logging.INFO)
