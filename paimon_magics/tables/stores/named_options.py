"""Settings of a store among Paimon's catalog options, under any of the names that are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["named_option"]


def named_option(
    options: Mapping[str, str], prefixes: Sequence[str], names: Sequence[str]
) -> str | None:
    """The value of the first option that is set: each name is tried with each prefix."""
    keys = (f"{prefix}{name}" for name in names for prefix in prefixes)
    return next((str(options[key]) for key in keys if options.get(key)), None)
