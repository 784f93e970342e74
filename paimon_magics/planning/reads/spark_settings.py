"""The effect of a Spark session's settings here: honored, refused, or without influence.

Spark runs the user's own text, so most of its settings take effect anyway. The settings in
`REFUSED` change the meaning of a text, a literal or a column, and this project also parses such
texts: a statement is refused while they are set. `spark.paimon.<option>` and
`spark.paimon.<catalog>.<database>.<table>.<option>` are Paimon's dynamic options of tables, with
`*` for any (`OptionUtils.copyWithSQLConf`, `SparkConnectorOptions`): read options apply to reads,
`PAIMON_HONOURED` are handled elsewhere, and any other option is refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from paimon_magics.errors import UnsupportedStatementError, nearest
from paimon_magics.planning.options.table_options import CORE_OPTIONS, DEPRECATED_KEYS
from paimon_magics.planning.reads.read_points import POINT_OPTIONS, READ_OPTIONS
from paimon_magics.planning.reads.stream_points import LIMIT_OPTIONS
from paimon_magics.statements.statement import TableName

PAIMON_PREFIX = "spark.paimon."


@dataclass(frozen=True, slots=True)
class RefusedSetting:
    """A setting that is refused unless it is `default`, and its consequence."""

    default: str
    consequence: str


HONOURED: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "how values are cast",
    "spark.sql.session.timeZone": "the time zone of times without a zone, in a statement and a "
    "result",
    "spark.sql.sources.partitionOverwriteMode": "what an INSERT OVERWRITE replaces",
    "spark.sql.shuffle.partitions": "how many tasks write",
    "spark.sql.variable.substitute": "a statement with a `${…}` that Spark replaces is refused",
}
"""Settings of Spark that this project itself reads, with their meaning."""

_REFUSED_IF_TRUE = {
    "spark.sql.ansi.doubleQuotedIdentifiers": 'a text in double quotes, "…", would be an '
    "identifier",
    "spark.sql.parser.escapedStringLiterals": "a backslash in a text would be literal",
    "spark.sql.parser.quotedRegexColumnNames": "a name in backquotes would be a regular expression "
    "for columns",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "two adjacent quotes in a text would end "
    "one text and begin another",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "a number with an exponent would be a "
    "DECIMAL",
    "spark.sql.legacy.keepPartitionSpecAsStringLiteral": "a value of PARTITION (…) would be its "
    "literal text",
    "spark.sql.legacy.parseNullPartitionSpecAsStringLiteral": "NULL in PARTITION (…) would be the "
    "text 'null'",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "times would be converted to texts "
    "for comparison with texts",
    "spark.sql.caseSensitive": "columns whose names differ only in case would be distinct",
    "spark.sql.legacy.charVarcharAsString": "CHAR(n) and VARCHAR(n) would be STRING",
    "spark.sql.charAsVarchar": "CHAR(n) would be VARCHAR(n)",
    "spark.sql.preserveCharVarcharTypeInfo": "CHAR(n) and VARCHAR(n) would be separate types in a "
    "query",
    "spark.sql.parquet.int96TimestampConversion": "times in files that Java did not write would be "
    "shifted by the time zone",
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": "a STRUCT would be NULL if a "
    "file lacks all selected fields",
    "spark.sql.stableDerivedColumnAlias.enabled": "unnamed columns would get different names",
}
REFUSED: Mapping[str, RefusedSetting] = {
    **{key: RefusedSetting("false", text) for key, text in _REFUSED_IF_TRUE.items()},
    "spark.sql.timestampType": RefusedSetting(
        "timestamp_ltz", "TIMESTAMP would be a time without a zone"
    ),
    "spark.sql.storeAssignmentPolicy": RefusedSetting(
        "ansi", "values that don't fit into a column would be stored as NULL or cut"
    ),
    "spark.sql.defaultColumn.enabled": RefusedSetting("true", "columns would have no defaults"),
    "spark.sql.defaultColumn.useNullsForMissingDefaultValues": RefusedSetting(
        "true", "columns that an INSERT omits would need a default"
    ),
    "spark.sql.readSideCharPadding": RefusedSetting(
        "true", "texts of CHAR(n) columns would be shown without trailing spaces"
    ),
    "spark.sql.functionResolution.sessionOrder": RefusedSetting(
        "second", "functions of the session would hide Spark's functions"
    ),
    "spark.sql.files.ignoredPathSegmentRegex": RefusedSetting(
        "^[._]", "data files whose names match would not be read"
    ),
}
"""By key. `spark.sql.storeAssignmentPolicy` = STRICT is honored, too."""

_ACCEPTED_BESIDE = {"spark.sql.storeAssignmentPolicy": ("strict",)}

LEXING = tuple(_REFUSED_IF_TRUE)[:4]
"""The settings in REFUSED that change how a text is parsed."""

_STORED = "the files of tables are read as Paimon stores them, regardless of this setting"
WITHOUT_INFLUENCE: Mapping[str, str] = {
    "spark.sql.avro.datetimeRebaseModeInRead": _STORED,
    "spark.sql.files.ignoreCorruptFiles": _STORED,
    "spark.sql.files.ignoreMissingFiles": _STORED,
    "spark.sql.parquet.datetimeRebaseModeInRead": _STORED,
    "spark.sql.parquet.int96RebaseModeInRead": _STORED,
    "spark.sql.defaultCatalog": "names without a catalog are Paimon's here",
    "spark.sql.sources.default": "a table without USING is Paimon's here",
}
"""Settings that change what a statement means to Spark, with the reason that they don't here."""

PAIMON_HONOURED: Mapping[str, str] = {
    "write.merge-schema": "INSERT BY NAME and MERGE add columns",
    "write.merge-schema.type-widening": "they widen types, too",
    "write.merge-schema.explicit-cast": "they change types by casts, too",
}
"""Options behind `spark.paimon.` that hold for the session, beside those of reads."""

_OF_STREAMS = "it limits batches of a stream, which session.stream takes as options"
_SPEED_ONLY = """
cache-page-size data-evolution.merge-into.file-pruning data-evolution.merge-into.source-persist
file-index.read.enabled file-operation.thread-num file-reader-async-threshold
format-table.scan.list-parallelism local-merge-buffer-size local-sort.max-num-file-handles
lookup.cache-file-retention lookup.cache-max-disk-size lookup.cache-max-memory-size
lookup.cache-rows lookup.cache.bloom.filter.enabled lookup.cache.bloom.filter.fpp
lookup.cache.high-priority-pool-ratio lookup.hash-load-factor page-size read.batch-size
scan.manifest.parallelism scan.max-splits-per-task sort-engine sort-spill-buffer-size
sort-spill-threshold source.split.target-size-with-column-pruning spill-compression
write-buffer-for-append write-buffer-size write-buffer-spill.max-disk-size write-buffer-spillable
write-max-writers-to-spill write.batch-memory write.batch-size
"""
PAIMON_WITHOUT_INFLUENCE: Mapping[str, str] = {
    "requiredSparkConfsCheck.enabled": "there is no connector whose settings are checked",
    "write.use-v2-write": "it chooses between two writers of the connector with the same rows",
    "v1Function.enabled": "functions of the catalog are always looked up",
    "vector-search.lateral-join.parallelism": "it is about vector search, which is not offered",
    **dict.fromkeys(
        (
            "write.data-evolution.update-conflict-retry.max-attempts",
            "write.data-evolution.update-conflict-retry.wait-ms",
        ),
        "it repeats updates of tables with 'data-evolution.enabled': `row_level_retries` says how "
        "often here",
    ),
    **dict.fromkeys(LIMIT_OPTIONS, _OF_STREAMS),
    **dict.fromkeys(_SPEED_ONLY.split(), "it only changes how fast the connector is"),
}
"""Options behind `spark.paimon.` that change neither rows nor files' contents, with the reason."""

_USUAL = {
    "legacy-timestamp-mapping.enabled": "false",
    "read.allow.fullScan": "true",
    "read.changelog": "false",
    # What is done here whatever the table's own option is.
    "scan.ignore-corrupt-files": "false",
    "scan.ignore-lost-files": "false",
    "variant.inferShreddingSchema": "false",
}
_KNOWN = frozenset({*CORE_OPTIONS, *DEPRECATED_KEYS, *READ_OPTIONS, *_USUAL})
_SCOPE_PARTS = 3
_READING = ("DELETE", "UPDATE", "MERGE")


@dataclass(frozen=True, slots=True)
class _Option:
    """An option that is set: by its `key` in Spark, for the tables of `scope`, None for all."""

    key: str
    scope: tuple[str, str, str] | None
    name: str
    value: str

    def is_for(self, catalog: str, table: TableName | None) -> bool:
        """Whether the option is for a table of ours; without a table, for any."""
        if self.scope is None:
            return True
        if table is None:
            return self.scope == ("*", "*", "*")
        own = (catalog, table.database or "", table.object_name)
        return all(part in ("*", mine) for part, mine in zip(self.scope, own, strict=True))

    @property
    def rank(self) -> int:
        """The more exactly an option names its table, the later it is applied."""
        return 0 if self.scope is None else 1 + sum(part != "*" for part in self.scope)


def check_sql_settings(settings: Mapping[str, str]) -> None:
    """Raise UnsupportedStatementError for the first setting in REFUSED without its usual value."""
    for key, setting in REFUSED.items():
        value = settings.get(key)
        if value is None or value.lower() in (setting.default, *_ACCEPTED_BESIDE.get(key, ())):
            continue
        usual = setting.default.upper() if setting.default.isalpha() else setting.default
        raise UnsupportedStatementError(
            f"Spark's setting {key} = {value} is not honored here: {setting.consequence}.",
            hint=f"Nothing was read or written. Set it back: "
            f"spark.conf.set('{key}', '{usual.lower()}'), or SET {key} = {usual.lower()} in a "
            "cell.",
        )


def options_set(
    settings: Mapping[str, str],
    catalog: str,
    table: TableName | None,
    choosing: Mapping[str, str],
    known: Collection[str] = READ_OPTIONS,
) -> dict[str, str]:
    """The read options among `known` that the `settings` have for a table of the catalog;
    `choosing` are the read's own options, which take precedence. Without a table: the options for
    any table.

    Raises UnsupportedStatementError for an option behind `spark.paimon.` that is for the table and
    neither honored nor without influence.
    """
    chosen: dict[str, str] = {}
    own = {DEPRECATED_KEYS.get(key, key) for key in choosing}
    chooses = any(key in POINT_OPTIONS for key in own)
    options = [option for option in _options(settings) if option.is_for(catalog, table)]
    for option in sorted(options, key=lambda option: option.rank):
        name = DEPRECATED_KEYS.get(option.name, option.name)
        if name in known:
            if name not in own and not (chooses and name in POINT_OPTIONS):
                chosen[name] = option.value
        elif name in PAIMON_HONOURED and option.scope is None:
            continue
        elif name not in PAIMON_WITHOUT_INFLUENCE and _USUAL.get(name) != option.value.lower():
            raise _not_honoured(option, name)
    return chosen


def refuse_read_point(
    settings: Mapping[str, str], catalog: str, table: TableName | None, verb: str
) -> None:
    """Raise UnsupportedStatementError for a setting that is not honored, and for settings that
    choose a branch of a table that a statement of the kind `verb` writes or changes. DELETE, UPDATE
    and MERGE read the table, so for them settings that choose a state are also refused."""
    options = options_set(settings, catalog, table, {})
    wrong = ("branch", *POINT_OPTIONS) if verb in _READING else ("branch",)
    name = next((option for option in options if option in wrong), None)
    if name is None or options[name] == "main":
        return
    key = next(
        option.key
        for option in _options(settings)
        if option.is_for(catalog, table) and DEPRECATED_KEYS.get(option.name, option.name) == name
    )
    raise UnsupportedStatementError(
        f"{verb} is not run while {key} = {options[name]}: that setting selects which rows are "
        "read, but a change applies to the table's current state.",
        hint=f"Nothing was read or written. {_back(key)}",
    )


def _options(settings: Mapping[str, str]) -> Iterator[_Option]:
    for key, value in sorted(settings.items()):
        if not key.startswith(PAIMON_PREFIX):
            continue
        rest = key.removeprefix(PAIMON_PREFIX)
        parts = rest.split(".")
        known = rest in _KNOWN or rest in PAIMON_HONOURED or rest in PAIMON_WITHOUT_INFLUENCE
        if known or len(parts) <= _SCOPE_PARTS:
            yield _Option(key, None, rest, value)
        else:
            scope = (parts[0], parts[1], parts[2])
            yield _Option(key, scope, ".".join(parts[_SCOPE_PARTS:]), value)


def _not_honoured(option: _Option, name: str) -> UnsupportedStatementError:
    known = name in _KNOWN or name in PAIMON_HONOURED or name.startswith("fields.")
    unknown = "" if known else f" {nearest(name, READ_OPTIONS, what='read options')}"
    return UnsupportedStatementError(
        f"Spark's setting {option.key} = {option.value} is not honored here: '{name}' would change "
        "which rows are read or written."
        if known
        else f"Spark's setting {option.key} = {option.value} is not honored here: Paimon has no "
        f"option '{name}'.",
        hint=f"Nothing was read or written. {_back(option.key)}{unknown}",
    )


def _back(key: str) -> str:
    return f"Unset it: spark.conf.unset('{key}'), or RESET `{key}` in a cell."
