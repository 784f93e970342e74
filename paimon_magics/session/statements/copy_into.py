"""The handlers of COPY INTO."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.session.copying.exporting import export_lines, run_export, unconfirmed_export
from paimon_magics.session.copying.loading import (
    first_rows,
    plan_load,
    prepare_load,
    run_load,
)
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.row_changes.previews import ChangedRows
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.statements.handler import Handler
from paimon_magics.session.writes.prepare import distribution
from paimon_magics.statements.copying import CopyIntoFiles, CopyIntoTable
from paimon_magics.statements.subjects import subject_of

_SHOWN_FILES = 5
_ERRORS = {
    "ABORT_STATEMENT": "A row that can't be loaded ends the statement.",
    "CONTINUE": "A job reads all files first; rows that can't be loaded are left out.",
    "SKIP_FILE": "A job reads all files first; files with rows that can't be loaded are left out.",
}


def copy_handler(
    scope: StatementScope, copy: CopyIntoTable | CopyIntoFiles, parameters: Mapping[str, object]
) -> Handler:
    """COPY INTO, both ways."""
    if isinstance(copy, CopyIntoTable):
        return _load_handler(scope, copy)
    return _export_handler(scope, copy, parameters)


def _load_handler(scope: StatementScope, copy: CopyIntoTable) -> Handler:
    """COPY INTO a table."""

    def run() -> Outcome:
        try:
            return run_load(scope, copy)
        except UnknownNameError as error:
            raise _with_creation(copy, error) from error

    return Handler(
        run=run,
        dry_run=lambda: "Would run. " + " ".join(_load_lines(scope, copy)),
        explain=lambda mode: _load_lines(scope, copy),
        preview=lambda: _preview(scope, copy),
        changed=lambda: (copy.target,),
        needs=(copy.target,),
    )


def _export_handler(
    scope: StatementScope, copy: CopyIntoFiles, parameters: Mapping[str, object]
) -> Handler:
    """COPY INTO files."""
    return Handler(
        run=lambda: run_export(scope, copy, parameters),
        dry_run=lambda: "Would run. " + " ".join(export_lines(scope, copy, parameters)),
        explain=lambda mode: export_lines(scope, copy, parameters),
        unconfirmed=lambda mode: unconfirmed_export(scope, copy),
        needs=subject_of(copy).sources,
    )


def _load_lines(scope: StatementScope, copy: CopyIntoTable) -> list[str]:
    plan = plan_load(scope, copy)
    size = size_text(sum(file.size_bytes for file in plan.to_load))
    names = ", ".join(file.name for file in plan.to_load[:_SHOWN_FILES])
    names += ", …" if len(plan.to_load) > _SHOWN_FILES else ""
    lines = [f"{plan.table.name}: {count_text(len(plan.to_load), 'file')} ({size}) to load."]
    if names:
        lines[0] = f"{lines[0][:-1]}: {names}."
    if plan.known:
        lines.append(f"{count_text(len(plan.known), 'file')} loaded before; FORCE = TRUE repeats.")
    if not plan.to_load:
        return lines
    prepared = prepare_load(scope, copy, plan)
    if copy.validate:
        return [*lines, "Their rows are checked, and nothing is written."]
    lines.append(_ERRORS[copy.on_error])
    casts = prepared.changeable()
    if casts:
        lines.append(f"Casts that may round or cut values: {', '.join(casts)}.")
    lines.append(f"Distribution: {distribution(scope, prepared)}.")
    return lines


def _preview(scope: StatementScope, copy: CopyIntoTable) -> ChangedRows:
    plan = plan_load(scope, copy)
    files = f"{count_text(len(plan.to_load), 'file')} would be loaded"
    known = f", {len(plan.known):,} loaded before" if plan.known else ""
    line = f"`{plan.table.name}`: {files}{known}. The first rows, as they would be stored:"
    return ChangedRows(plan.table, line, first_rows(scope, copy, plan))


def _with_creation(copy: CopyIntoTable, error: UnknownNameError) -> UnknownNameError:
    """The error, which for a missing table says how to create one with the files' columns."""
    if error.position == copy.target_position:
        kind = copy.format.type.lower()
        error.hint = (
            f"{error.hint} To create it with the names and types of the files: CREATE TABLE "
            f"{copy.target} AS SELECT * FROM {kind}.`{copy.path}` LIMIT 0."
        ).strip()
    return error
