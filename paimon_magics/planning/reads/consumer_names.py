"""What may name a consumer: it names a file, `consumer/consumer-ID`."""

from __future__ import annotations

import re

from paimon_magics.errors import InvalidValueError

__all__ = ["check_consumer_name"]

_BYTES_MAX = 240
_NAME = re.compile(r"[^/\\\s\x00-\x1f]{1,200}")


def check_consumer_name(name: str) -> None:
    """Raise InvalidValueError for a name that can't be a consumer's."""
    is_long = len(name.encode(errors="replace")) > _BYTES_MAX
    if is_long or not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidValueError(
            f"'{name}' can't name a consumer ('consumer-id').",
            hint="Use letters, digits, dots, dashes and underscores.",
        )
