"""The options with which a task opens the store of a table, in a process of its own."""

from __future__ import annotations

from typing import Any

from paimon_magics.tables.pypaimon_internals import catalog_options, store_options
from paimon_magics.tables.stores.s3_access import for_tasks


def native_options(paimon: Any) -> dict[str, str] | None:
    """The options with which the native library opens a table's files in a task; None for a store
    that it does not know."""
    options = store_options(paimon)
    return None if options is None else for_tasks(options, str(paimon.table_path))


def io_options(paimon: Any) -> tuple[tuple[str, str], ...]:
    """The same, sorted; () for a store that the native library does not know."""
    return tuple(sorted((native_options(paimon) or {}).items()))


def options_of_catalog(paimon: Any) -> tuple[tuple[str, str], ...]:
    """The options of the table's catalog for a task, sorted."""
    options = for_tasks(catalog_options(paimon), str(paimon.table_path))
    return tuple(sorted((str(key), str(value)) for key, value in options.items()))
