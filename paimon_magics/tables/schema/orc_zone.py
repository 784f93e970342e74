"""The zone of the machines that wrote a table's ORC files, where the files don't tell it."""

from __future__ import annotations

from collections.abc import Collection

from paimon_magics.columnar.time_zones import UTC, arrow_zone, process_zone
from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.data_types import contains_type

WRITER_ZONE = "orc.timestamp-ltz.writer-zone"
_LEGACY = "orc.timestamp-ltz.legacy.type"


def orc_legacy_zone(schema: TableSchema) -> str | None:
    """The zone in which the TIMESTAMP_LTZ of ORC files was shifted by its writer, for files that
    don't tell it: the option WRITER_ZONE of the table, else the zone of this process, as in Java.
    None for tables whose writers shift nothing (`orc.timestamp-ltz.legacy.type` = false).

    Raises InvalidTableError for a zone that does not exist.
    """
    if (schema.stored_option(_LEGACY) or "true").lower() == "false":
        return None
    named = schema.option(WRITER_ZONE)
    if not named:
        return process_zone()
    zone = arrow_zone(named)
    if zone == UTC and named.strip().lower() not in ("utc", "gmt", "z", "etc/utc"):
        raise InvalidTableError(
            f"The table option '{WRITER_ZONE}' is '{named}', which is no time zone.",
            hint="Name the zone of the machines that wrote the files, as Asia/Tokyo or +09:00.",
        )
    return zone


def unknown_zone_note(schema: TableSchema, names: Collection[str] | None) -> str | None:
    """What to tell of a read of the columns `names` (None for all) whose instants rest on the zone
    of this machine; None where they don't, or where that zone is UTC."""
    if schema.file_format != "orc" or schema.option(WRITER_ZONE):
        return None
    if any(contains_type(column.type, "TIMESTAMP") for column in schema.columns):
        return None  # the files name the zone of their writers
    wanted = None if names is None else {name.lower() for name in names}
    instants = [
        column.name
        for column in schema.columns
        if contains_type(column.type, "TIMESTAMP_LTZ")
        and (wanted is None or column.name.lower() in wanted)
    ]
    zone = orc_legacy_zone(schema) if instants else None
    if zone in (None, UTC):
        return None
    return (
        f"`{instants[0]}` is in ORC files, which don't tell the time zone of their writers: it was "
        f"read as written in {zone}, this machine's zone. The table option '{WRITER_ZONE}' names "
        "another."
    )
