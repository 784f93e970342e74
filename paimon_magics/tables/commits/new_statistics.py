"""The file of table statistics that ANALYZE commits (Paimon's `StatsFile`)."""

from __future__ import annotations

import json
from typing import Any

from paimon_magics.errors import CommitConflictError, InvalidValueError
from paimon_magics.planning.commits.requests import Analyze, Change
from paimon_magics.tables.manifests.names import MetadataNames
from paimon_magics.tables.table import Table


class NewStatistics:
    """The statistics of a commit's change, if it has any. Each attempt writes a file of its own,
    with a name from `names`."""

    def __init__(self, table: Table, change: Change, names: MetadataNames) -> None:
        self._table = table
        self._names = names
        self._text = change.statistics if isinstance(change, Analyze) else ""

    @property
    def is_given(self) -> bool:
        """Whether the change has statistics."""
        return bool(self._text)

    def written(self, latest: Any) -> str:
        """Write the file for a snapshot on top of `latest`; return its name.

        Raises InvalidValueError for a text that is no statistics, CommitConflictError for
        statistics that are not of the table as it is.
        """
        self._check(latest)
        name = self._names.statistics()
        self._table.paimon.file_io.write_file(self._path(name), self._text, False)
        return name

    def paths(self, name: str | None) -> tuple[str, ...]:
        """The paths of the files that `written` has made for a snapshot with these statistics."""
        return (self._path(name),) if self.is_given and name is not None else ()

    def _path(self, name: str) -> str:
        return f"{self._table.paimon.path_factory().statistics_path()}/{name}"

    def _check(self, latest: Any) -> None:
        name = self._table.name
        try:
            document = json.loads(self._text)
            snapshot_id, schema_id = document["snapshotId"], document["schemaId"]
            is_valid = isinstance(document.get("colStats"), dict)
        except (ValueError, KeyError, TypeError, AttributeError):
            is_valid, snapshot_id, schema_id = False, 0, 0
        if not is_valid or type(snapshot_id) is not int or type(schema_id) is not int:
            raise InvalidValueError(
                f"The statistics of `{name}` are not in the form of Paimon's.",
                hint="They are a JSON object with snapshotId, schemaId and colStats.",
            )
        is_past = latest is not None and 0 < snapshot_id <= latest.id
        if not is_past or schema_id != self._table.paimon.table_schema.id:
            raise CommitConflictError(
                f"`{name}` was changed while it was analyzed: it has another schema, or was rolled "
                "back.",
                hint="Nothing was changed. Run the statement again.",
            )
