"""Plans CALL of Paimon's procedures.

Names, parameters, their order and the columns of the results are those of Paimon's Spark procedures
(`SparkProcedures`). A value must be a literal of the parameter's kind; a whole number may stand in
quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.statements.grammar.calls import NAMESPACE
from paimon_magics.statements.maintenance import (
    AlterViewDialect,
    CompactDatabase,
    CompactManifest,
    CompactTable,
    CopyTable,
    DefineFunction,
    Maintenance,
    MergeBranch,
    MigrateDatabase,
    MigrateTable,
    RemoveFunction,
    RescaleBuckets,
    RewriteFileIndex,
    function_change,
    json_objects,
)
from paimon_magics.statements.removals import (
    ExpireChangelogs,
    ExpirePartitions,
    ExpireSnapshots,
    ExpireTags,
    PurgeFiles,
    Removal,
    RemoveOrphanFiles,
    RemoveUnexistingFiles,
)
from paimon_magics.statements.version_changes import (
    Argument,
    Call,
    ClearConsumers,
    CreateAutomaticTags,
    CreateBranch,
    CreateTag,
    CreateTagFromTimestamp,
    DeleteBranches,
    DeleteTags,
    FastForward,
    MarkPartitionsDone,
    RenameBranch,
    RenameTag,
    RepairEarliestSnapshot,
    ReplaceTag,
    ResetConsumer,
    RollBackToSnapshot,
    RollBackToTag,
    RollBackToTimestamp,
    RollBackToWatermark,
    VersionChange,
)
from paimon_magics.statements.version_changes import Parameter as Placeholder

_Change = TypeVar("_Change", bound=Maintenance | Removal)

_GLOBAL_INDEX = (
    "global indexes find rows by their row ids, for searches that are not offered here",
    "Let Paimon's Spark connector do it. For faster look-ups set 'file-index.bloom-filter.columns' "
    f"and CALL {NAMESPACE}.rewrite_file_index(table => …).",
)
_REFUSED = {
    "compact_chain_table": (
        "chain tables ('chain-table.enabled') are joined from branches by the connector alone",
        "Let Paimon's Spark connector do it. INSERT OVERWRITE of a partition does it by hand.",
    ),
    "create_global_index": _GLOBAL_INDEX,
    "drop_global_index": _GLOBAL_INDEX,
    "materialize_deletion_vectors": (
        "released versions of Paimon have no such procedure",
        f"CALL {NAMESPACE}.compact(table => …) writes files without their deleted rows.",
    ),
    "reassign_row_id": (
        "the row ids of a table with row tracking stay with their rows here, and only Paimon's "
        "Flink has this procedure in released versions",
        "Call it in Flink.",
    ),
    "refresh_object_table": (
        "object tables list files of a folder, and are no tables with snapshots; only Paimon's "
        "Flink has this procedure",
        "Call it in Flink.",
    ),
    "repair": (
        "it registers tables of a file system in Hive's metastore or a JDBC catalog. A file system "
        "catalog finds its tables in their folders, so there is nothing to repair, and the "
        "connector refuses it there, too",
        "SHOW TABLES lists what is in the folders; SHOW DATABASES the databases.",
    ),
}
"""Procedures of Paimon's engines that are not offered: why not, and what to do instead."""

_STATEMENTS = {
    "drop_partition": "Write ALTER TABLE t DROP PARTITION (day = '2026-01-31').",
    "rewrite_data_files": "CALL sys.compact(table => 't') rewrites data files.",
    "rewrite_position_delete_files": "CALL sys.compact(table => 't') rewrites files with deletes.",
    "rewrite_manifests": "CALL sys.compact_manifest(table => 't') rewrites manifests.",
    "rollback_to_snapshot": "Write CALL sys.rollback(table => 't', version => '3').",
    "set_current_snapshot": "Write CALL sys.rollback(table => 't', version => '3').",
    "ancestors_of": "DESCRIBE HISTORY t lists the snapshots.",
    "create_changelog_view": "t$audit_log has the changes of a table: SELECT * FROM t$audit_log.",
    "add_files": "COPY INTO t FROM 'path' FILE_FORMAT = (TYPE = PARQUET) loads files.",
    "snapshot": "CREATE TABLE new AS SELECT * FROM t copies a table.",
    "migrate": "CALL sys.migrate_table(source_type => 'hive', table => 'db.t') takes a table over.",
    "vacuum": "CALL sys.expire_snapshots(table => 't', retain_max => 10) removes old snapshots.",
    "optimize": "CALL sys.compact(table => 't') rewrites data files.",
}
"""What does the work of procedures that other engines have."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter: its kind is `str`, `int`, `bool`, or `dict` for a map of texts. `default` is the
    value of a missing `bool`."""

    name: str
    kind: type
    required: bool = False
    default: bool = False


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure that is offered. `make` builds the change from the checked
    arguments behind the table."""

    name: str
    parameters: tuple[_Parameter, ...]
    make: Callable[..., VersionChange | Maintenance | Removal]

    @property
    def is_about_a_table(self) -> bool:
        """Whether its first parameter is the table that it changes."""
        return bool(self.parameters) and self.parameters[0].name == "table"

    @property
    def form(self) -> str:
        """How it is called: `sys.create_tag(table, tag [, snapshot] [, time_retained])`."""
        return f"{NAMESPACE}.{self.name}({self.signature})"

    @property
    def signature(self) -> str:
        """Its parameters: `table, tag [, snapshot] [, time_retained]`."""
        required = ", ".join(p.name for p in self.parameters if p.required)
        comma = ", " if required else ""
        optional = [f"[{comma}{p.name}]" for p in self.parameters if not p.required]
        return " ".join(filter(None, (required, *optional)))


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A checked CALL. `table` is the table's name as text, None for a procedure on several tables;
    `position` is its position in the statement."""

    procedure: str
    table: str | None
    change: VersionChange | Maintenance | Removal
    position: int


def plan_call(call: Call, parameters: Mapping[str, object], catalog: str) -> PlannedCall:
    """Check a CALL and return the change that it asks for.

    `parameters` are the values of `:name` arguments, `catalog` is the name of Paimon's catalog.
    Raises UnsupportedStatementError for a Paimon procedure that is not offered, UnknownNameError
    for an unknown procedure or parameter, and InvalidValueError for missing, surplus or mistyped
    arguments. Each error has its position in the statement.
    """
    procedure = _offered_procedure(call, catalog)
    arguments = _assigned(call, procedure)
    values: dict[str, Any] = {}
    for parameter in procedure.parameters:
        argument = arguments.get(parameter.name)
        value = None if argument is None else _value(argument, parameter, parameters, call)
        if value is None and parameter.required:
            raise InvalidValueError(
                f"{NAMESPACE}.{procedure.name} needs `{parameter.name}`.",
                hint=f"Call {procedure.form}.",
                statement=call.text,
                position=call.procedure_position if argument is None else argument.position,
            )
        if parameter.kind is bool and value is None:
            value = parameter.default
        values[parameter.name] = value
    is_about_a_table = procedure.is_about_a_table
    table = arguments.get("table") if is_about_a_table else None
    name = values.pop("table") if is_about_a_table else None
    try:
        change = procedure.make(*values.values())
    except PaimonMagicsError as error:
        error.statement, error.position = call.text, call.procedure_position
        raise
    position = call.procedure_position if table is None else table.position
    return PlannedCall(procedure.name, name, change, position)


def _offered_procedure(call: Call, catalog: str) -> Procedure:
    *prefix, name = call.procedure
    wanted = name.lower()
    if [part.lower() for part in prefix[-1:]] != [NAMESPACE] or prefix[:-1] not in (
        [],
        [catalog],
    ):
        raise not_in_namespace(call.procedure, call.text, call.procedure_position)
    if wanted in PROCEDURES:
        return PROCEDURES[wanted]
    if wanted in _REFUSED:
        reason, instead = _REFUSED[wanted]
        raise UnsupportedStatementError(
            f"Paimon's procedure `{NAMESPACE}.{wanted}` is not offered here: {reason}.",
            hint=instead,
            statement=call.text,
            position=call.procedure_position,
        )
    raise UnknownNameError(
        f"There is no procedure `{NAMESPACE}.{name}`.",
        hint=_STATEMENTS.get(wanted) or nearest(wanted, PROCEDURES, what="procedures"),
        statement=call.text,
        position=call.procedure_position,
    )


def not_in_namespace(procedure: Sequence[str], text: str, position: int) -> UnknownNameError:
    """The error for a procedure of a catalog or namespace that has none."""
    wanted = procedure[-1].lower()
    hint = f"Paimon's procedures are in `{NAMESPACE}`"
    if wanted in PROCEDURES or wanted in _REFUSED:
        hint += f": CALL {NAMESPACE}.{wanted}(…)."
    else:
        hint += f". {_STATEMENTS.get(wanted) or _offered()}"
    return UnknownNameError(
        f"There is no procedure `{'.'.join(procedure)}`.",
        hint=hint,
        statement=text,
        position=position,
    )


def check_passed(
    procedure: Sequence[str], catalog: str, current_catalog: str, text: str, position: int
) -> None:
    """Raise UnknownNameError for a procedure in another namespace than Paimon's that Spark can't
    have either: in Paimon's own `catalog`, or in a namespace of Spark's built-in catalog."""
    *prefix, name = procedure
    known = any(name.lower() in names for names in (PROCEDURES, _REFUSED, _STATEMENTS))
    if prefix[0] == catalog or (known and len(prefix) == 1 and current_catalog == _SPARKS):
        raise not_in_namespace(procedure, text, position)


def _assigned(call: Call, procedure: Procedure) -> dict[str, Argument]:
    """The arguments by parameter name."""
    names = [parameter.name for parameter in procedure.parameters]
    by_name = {name.lower(): name for name in names}
    assigned: dict[str, Argument] = {}
    for position, argument in enumerate(call.arguments):
        if argument.name is None:
            if position > 0 and call.arguments[0].name is not None:
                raise _misplaced(call, argument, "Positional and named arguments can't be mixed.")
            if position >= len(names):
                raise _misplaced(
                    call, argument, f"There are too many arguments for {procedure.form}."
                )
            assigned[names[position]] = argument
            continue
        if call.arguments[0].name is None:
            raise _misplaced(call, argument, "Positional and named arguments can't be mixed.")
        name = by_name.get(argument.name.lower())
        if name is None:
            raise UnknownNameError(
                f"{NAMESPACE}.{procedure.name} has no parameter `{argument.name}`.",
                hint=nearest(argument.name, names, what="parameters"),
                statement=call.text,
                position=argument.position,
            )
        if name in assigned:
            raise _misplaced(call, argument, f"`{name}` is given twice.")
        assigned[name] = argument
    return assigned


def _misplaced(call: Call, argument: Argument, message: str) -> InvalidValueError:
    return InvalidValueError(
        message,
        hint="Name each argument, as `tag => 'monday'`.",
        statement=call.text,
        position=argument.position,
    )


def _value(
    argument: Argument, parameter: _Parameter, bound: Mapping[str, object], call: Call
) -> Any:
    value = argument.value
    if isinstance(value, Placeholder):
        value = bound[value.name]  # type: ignore[assignment]
    if isinstance(value, str):
        value = value.strip() if parameter.name == "table" else value
    converted = _converted(value, parameter.kind)
    if value is not None and converted is None:
        kinds = {str: "a text", int: "a whole number", bool: "true or false", dict: "map('k', 'v')"}
        raise InvalidValueError(
            f"`{parameter.name}` must be {kinds[parameter.kind]}, not {value!r}.",
            hint=f"Call {PROCEDURES[call.procedure[-1].lower()].form}.",
            statement=call.text,
            position=argument.position,
        )
    return converted


def _converted(value: Any, kind: type) -> Any:
    if kind is dict:
        if isinstance(value, Mapping):
            return {str(key): str(each) for key, each in value.items()}
        return dict(value) if isinstance(value, tuple) else None
    if kind is bool:
        texts = {"true": True, "false": False}
        return texts.get(str(value).strip().lower())
    if isinstance(value, bool):
        return None
    if kind is int:
        if isinstance(value, str) and value.strip().lstrip("-").isdigit():
            return int(value)
        return value if isinstance(value, int) else None
    return str(value) if isinstance(value, str | int) else None


_SPARKS = "spark_catalog"
_COMPACTION = (
    "partitions compact_strategy order_strategy order_by where options partition_idle_time"
)
_RETENTION = "retain_max:int retain_min:int older_than max_deletes:int"
_PARTITION_EXPIRY = (
    "expiration_time timestamp_formatter timestamp_pattern expire_strategy max_expires:int options"
)
_UNEXISTING = "dry_run:bool parallelism:int"
_ORPHANS = "older_than dry_run:bool parallelism:int mode"
_DATABASE_COMPACTION = "including_databases including_tables excluding_tables options"


def _offered() -> str:
    return f"The procedures offered are {', '.join(sorted(PROCEDURES))}."


def _stated(make: Callable[..., _Change]) -> Callable[..., _Change]:
    """`make` with None in place of blank texts, which count as not given."""

    def make_change(*values: Any) -> _Change:
        return make(
            *((value.strip() or None) if isinstance(value, str) else value for value in values)
        )

    return make_change


def _names_in(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _roll_back(version: str | None, snapshot: int | None, tag: str | None) -> VersionChange:
    """Exactly one of the three names the target; `version` is a snapshot's number or a tag."""
    count = sum(value is not None for value in (version, snapshot, tag))
    if count != 1:
        raise InvalidValueError(
            f"sys.rollback takes one of `version`, `snapshot` and `tag`, not {count}.",
            hint="For example CALL sys.rollback(table => 't', snapshot => 3).",
        )
    if version is not None and version.isdigit():
        snapshot = int(version)
    if snapshot is not None:
        return RollBackToSnapshot(snapshot)
    return RollBackToTag(version or tag or "")


def _clear_consumers(including: str | None, excluding: str | None) -> VersionChange:
    """Blank texts count as not given."""
    patterns = (text if (text or "").strip() else None for text in (including, excluding))
    return ClearConsumers(*patterns)


def _merge_branch(source: str, target: str | None) -> Maintenance:
    merge = MergeBranch(source.strip(), (target or "main").strip())
    if not merge.source or not merge.target:
        raise InvalidValueError(
            "`source_branch` and `target_branch` must be names.",
            hint="`main` is the table itself.",
        )
    if merge.source == merge.target:
        raise InvalidValueError(
            f"The branch `{merge.source}` can't be merged into itself.",
            hint="Name another `target_branch`; without one it is `main`, the table itself.",
        )
    return merge


def _copy(source: str, target: str, where: str | None) -> Maintenance:
    return CopyTable(source.strip(), target.strip(), (where or "").strip() or None)


def _migrate_table(
    source_type: str,
    table: str,
    options: str | None,
    delete_origin: bool,
    target: str | None,
    more: Mapping[str, str] | None,
    parallelism: int | None,
) -> Maintenance:
    """`more` are options, too. Raises InvalidValueError for options that are no pairs."""
    target = (target or "").strip() or None
    pairs = _options(options, more)
    return MigrateTable(source_type.strip(), table, pairs, delete_origin, target, parallelism)


def _migrate_database(
    source_type: str,
    database: str,
    options: str | None,
    more: Mapping[str, str] | None,
    parallelism: int | None,
) -> Maintenance:
    pairs = _options(options, more)
    return MigrateDatabase(source_type.strip(), database.strip(), pairs, parallelism)


def _options(text: str | None, more: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """`k=v,k=v` and a map as pairs."""
    pairs: dict[str, str] = {}
    for part in filter(str.strip, (text or "").split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise InvalidValueError(
                f"`options` has '{part.strip()}', which is no option with a value.",
                hint="Write options as `file.format=orc,file.compression=zstd`.",
            )
        pairs[key.strip()] = value.strip()
    return tuple({**pairs, **(more or {})}.items())


def _alter_view_dialect(
    view: str, action: str, engine: str | None, query: str | None
) -> Maintenance:
    """Blank texts count as not given. Raises InvalidValueError for another action, and for a query
    that is missing or too much."""
    change = AlterViewDialect(
        view.strip(),
        action.strip().lower(),
        (engine or "").strip() or "spark",
        (query or "").strip() or None,
    )
    form = f"CALL {NAMESPACE}.alter_view_dialect(view => 'v', action => "
    if change.action not in ("add", "update", "drop"):
        raise InvalidValueError(
            f"`action` must be add, update or drop, not '{action}'.",
            hint=f"For example {form}'add', engine => 'flink', query => 'SELECT …').",
        )
    if (change.query is None) is not (change.action == "drop"):
        needs = "takes no" if change.action == "drop" else "needs a"
        example = "" if change.action == "drop" else ", query => 'SELECT …'"
        raise InvalidValueError(
            f"The action {change.action} {needs} `query`.",
            hint=f"Write {form}'{change.action}', engine => '{change.engine}'{example}).",
        )
    return change


def _create_function(
    function: str, inputs: str, results: str, fixed: bool, comment: str | None, options: str | None
) -> Maintenance:
    """Raises InvalidValueError for texts that are no fields or options."""
    fields = json_objects(inputs, "inputParams"), json_objects(results, "returnParams")
    return DefineFunction(function.strip(), *fields, fixed, comment, _options(options, None))


def _mark_done(partitions: str) -> VersionChange:
    named = tuple(part.strip() for part in partitions.split(";") if part.strip())
    if not named:
        raise InvalidValueError(
            "`partitions` names no partition.",
            hint=f"CALL {NAMESPACE}.mark_partition_done('t', 'day=2026-01-31;day=2026-02-01').",
        )
    return MarkPartitionsDone(named)


def _procedure(
    name: str,
    make: Callable[..., VersionChange | Maintenance | Removal],
    required: str = "",
    optional: str = "",
    *,
    is_about_a_table: bool = True,
) -> Procedure:
    """A procedure with the parameters `name` or `name:kind`; that of its table comes first. `true`
    is the kind of a `bool` that is true by default."""
    kinds: dict[str, type] = {"": str, "int": int, "bool": bool, "true": bool, "map": dict}
    parameters = [_Parameter("table", str, True)] if is_about_a_table else []
    for names, is_required in ((required, True), (optional, False)):
        for text in names.split():
            parameter, _, kind = text.partition(":")
            is_true = kind == "true"
            parameters.append(_Parameter(parameter, kinds[kind], is_required, is_true))
    return Procedure(name, tuple(parameters), make)


_OFFERED = (
    _procedure("compact", _stated(CompactTable), "", _COMPACTION),
    _procedure(
        "compact_database", CompactDatabase, "", _DATABASE_COMPACTION, is_about_a_table=False
    ),
    _procedure("compact_manifest", CompactManifest, "", "options dry_run:bool"),
    _procedure("rescale", _stated(RescaleBuckets), "", "bucket_num:int partitions where"),
    _procedure("rewrite_file_index", _stated(RewriteFileIndex), "", "where"),
    _procedure("create_tag", CreateTag, "tag", "snapshot:int time_retained"),
    _procedure(
        "create_tag_from_timestamp", CreateTagFromTimestamp, "tag timestamp:int", "time_retained"
    ),
    _procedure("replace_tag", ReplaceTag, "tag", "snapshot:int time_retained"),
    _procedure("rename_tag", RenameTag, "tag target_tag"),
    _procedure("delete_tag", lambda tag: DeleteTags(_names_in(tag)), "tag"),
    _procedure("create_branch", CreateBranch, "branch", "tag ignoreIfExists:bool"),
    _procedure("rename_branch", RenameBranch, "from_branch to_branch"),
    _procedure("delete_branch", lambda branch: DeleteBranches(_names_in(branch)), "branch"),
    _procedure("fast_forward", FastForward, "branch"),
    _procedure("merge_branch", _merge_branch, "source_branch", "target_branch"),
    _procedure("expire_snapshots", _stated(ExpireSnapshots), "", f"{_RETENTION} options"),
    _procedure("expire_changelogs", _stated(ExpireChangelogs), "", f"{_RETENTION} delete_all:bool"),
    _procedure("expire_tags", _stated(ExpireTags), "", "older_than"),
    _procedure("expire_partitions", _stated(ExpirePartitions), "", _PARTITION_EXPIRY),
    _procedure("remove_orphan_files", _stated(RemoveOrphanFiles), "", _ORPHANS),
    _procedure("purge_files", PurgeFiles),
    _procedure("remove_unexisting_files", RemoveUnexistingFiles, "", _UNEXISTING),
    _procedure("rollback", _roll_back, "", "version snapshot:int tag"),
    _procedure("rollback_to_timestamp", RollBackToTimestamp, "timestamp:int"),
    _procedure("rollback_to_watermark", RollBackToWatermark, "watermark:int"),
    _procedure("trigger_tag_automatic_creation", CreateAutomaticTags),
    _procedure("reset_consumer", ResetConsumer, "consumerId", "nextSnapshotId:int"),
    _procedure("clear_consumers", _clear_consumers, "", "includingConsumers excludingConsumers"),
    _procedure("copy", _copy, "source_table target_table", "where", is_about_a_table=False),
    _procedure(
        "migrate_table",
        _migrate_table,
        "source_type table",
        "options delete_origin:true target_table options_map:map parallelism:int",
        is_about_a_table=False,
    ),
    _procedure(
        "migrate_database",
        _migrate_database,
        "source_type database",
        "options options_map:map parallelism:int",
        is_about_a_table=False,
    ),
    _procedure(
        "alter_view_dialect",
        _alter_view_dialect,
        "view action",
        "engine query",
        is_about_a_table=False,
    ),
    _procedure(
        "create_function",
        _create_function,
        "function inputParams returnParams",
        "deterministic:true comment options",
        is_about_a_table=False,
    ),
    _procedure("alter_function", function_change, "function change", is_about_a_table=False),
    _procedure("drop_function", RemoveFunction, "function", is_about_a_table=False),
    _procedure("mark_partition_done", _mark_done, "partitions"),
    _procedure("repair_earliest_snapshot", RepairEarliestSnapshot, "snapshot_id:int"),
)
PROCEDURES = {procedure.name: procedure for procedure in _OFFERED}
"""The procedures that are offered, by name."""
