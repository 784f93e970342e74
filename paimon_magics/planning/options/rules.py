"""Checks of option keys and values: typing errors are refused before a table stores them.

Paimon stores any key and silently ignores unknown ones, so `buckt = 4` makes a table with the
default buckets. Here a key is accepted if Paimon or one of its engines defines it, or if it lies in
an open family (`parquet.…`, `fields.<column>.…`). Any other key is accepted if it resembles no
defined key, so that users can have their own (`owner`, `team.contact`); otherwise it is refused,
and the error names the key that it resembles. Two keys resemble each other if they differ only in
case and separators, or if `difflib` gives a similarity of at least 0.75.

Values are checked against the option's type as Paimon would read them when the table is opened.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial

from paimon_magics.errors import InvalidTableError, UnknownNameError
from paimon_magics.planning.options import values
from paimon_magics.planning.options.table_options import (
    DEPRECATED_KEYS,
    ENGINE_OPTIONS,
    FIELD_OPTIONS,
    OPEN_FAMILIES,
    OPTIONS,
    OptionDefinition,
)

_SIMILAR = 0.75
_KNOWN_KEYS = (*OPTIONS, *DEPRECATED_KEYS, *sorted(ENGINE_OPTIONS))


def check_option_value(key: str, value: str) -> None:
    """Raise InvalidTableError for a value that can't be read. Any value of an unknown key can."""
    option = known_option(key)
    if option is not None:
        _check_value(option, key, value)


def known_option(key: str) -> OptionDefinition | None:
    """Return the option with this key, which may be a deprecated one; None for an unknown key."""
    return OPTIONS.get(DEPRECATED_KEYS.get(key, key))


def check_option_key(key: str) -> None:
    """Raise UnknownNameError for an unknown key that resembles an option's."""
    if key in _KNOWN_KEYS or key.startswith(OPEN_FAMILIES):
        return
    if not key.strip():
        raise UnknownNameError("An option has an empty key.", hint="Give it a name.")
    match = re.fullmatch(r"fields\.([^.]+)\.(.+)", key)
    if match:
        # `fields.s.x.aggregate-function`: the option exists, but not for nested fields. Other
        # checks refuse it.
        if match[2].endswith(tuple(f".{suffix}" for suffix in FIELD_OPTIONS)):
            return
        meant = _resembling(match[2], FIELD_OPTIONS)
        if match[2] in FIELD_OPTIONS or meant is None:
            return
        meant = f"fields.{match[1]}.{meant}"
    else:
        meant = _resembling(key, _KNOWN_KEYS)
    if meant is not None:
        raise UnknownNameError(
            f"There is no option '{key}'.",
            hint=f"Did you mean `{meant}`? A custom key must not resemble one of Paimon's keys.",
        )


@lru_cache(maxsize=1_024)  # a comparison with all keys takes a millisecond
def _resembling(key: str, known: tuple[str, ...]) -> str | None:
    folded = _folded_keys(known)
    if _folded(key) in folded:
        return folded[_folded(key)]
    close = difflib.get_close_matches(key.lower(), known, n=1, cutoff=_SIMILAR)
    return close[0] if close else None


@cache
def _folded_keys(known: tuple[str, ...]) -> dict[str, str]:
    return {_folded(key): key for key in known}


def _folded(key: str) -> str:
    return re.sub(r"[-_. ]", "", key.lower())


def _check_value(option: OptionDefinition, key: str, value: str) -> None:
    if option.type == "choice":
        values.choice_value(key, value, option.choices)
    elif option.type in _PARSERS:
        _PARSERS[option.type](key, value)


def _check_map(key: str, value: str) -> None:
    if any(item.count(":") != 1 for item in value.split(",") if item):
        raise InvalidTableError(
            f"The option '{key}' can't be '{value}'.",
            hint="Its value must be pairs such as '0:lz4,1:zstd'.",
        )


_PARSERS: Mapping[str, Callable[[str, str], object]] = {
    "boolean": values.boolean_value,
    "integer": values.integer_value,
    "long": partial(values.integer_value, bits=64),
    "positive": values.positive_value,
    "double": values.double_value,
    "memory size": values.memory_size_bytes,
    "duration": values.duration_ms,
    "tag retention": values.retention_ms,
    "tag period": values.tag_period_ms,
    "time zone": values.zone_value,
    "map": _check_map,
}
