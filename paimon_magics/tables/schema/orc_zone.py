"""The time zone of the machines that wrote a table's ORC files, for files that don't record it."""

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
    don't record it: the option WRITER_ZONE of the table, else the zone of this process, as in Java.
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
            f"The table option '{WRITER_ZONE}' is '{named}', which is not a time zone.",
            hint="Set it to the time zone of the machines that wrote the files, such as Asia/Tokyo "
            "or +09:00.",
        )
    return zone


def unknown_zone_note(schema: TableSchema, names: Collection[str] | None) -> str | None:
    """The note for a read of the columns `names` (None for all) whose instants depend on the zone
    of this machine; None if they don't, or if that zone is UTC."""
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
        f"`{instants[0]}` is in ORC files, which don't record their writers' time zone. It was "
        f"read as if written in {zone}, this machine's time zone. To use another, set the table "
        f"option '{WRITER_ZONE}'."
    )
