"""The text of `%paimon help`: verbs, cell options, settings, and the offered statements.

A test compares `STATEMENTS` with docs/statements.md. Verbs and options come from their definitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import contains

from paimon_magics.errors import UnknownNameError, likely_meant, nearest
from paimon_magics.magics.line import VERBS
from paimon_magics.magics.options import CELL_OPTIONS
from paimon_magics.planning.commits.procedures import PROCEDURES
from paimon_magics.planning.options.table_options import OPTIONS, OptionDefinition
from paimon_magics.planning.reads.stream_points import STREAM_PURPOSES
from paimon_magics.statements.dialects.alternatives import COMING
from paimon_magics.statements.statement import SCOPES


@dataclass(frozen=True, slots=True)
class StatementHelp:
    """A statement's name, what it does, and its forms; `[…]` is optional."""

    name: str
    purpose: str
    forms: tuple[str, ...]


STATEMENTS = (
    StatementHelp(
        "SELECT",
        "read rows, of Paimon's tables and Spark's together",
        ("[WITH …] SELECT …", "VALUES (…), …", "TABLE name", "FROM name SELECT …"),
    ),
    StatementHelp(
        "INSERT INTO",
        "add rows, or merge them in by primary key",
        ("INSERT INTO t [PARTITION (c = v, …)] [(columns) | BY NAME] query",),
    ),
    StatementHelp(
        "INSERT OVERWRITE",
        "replace the table, or partitions of it",
        (
            "INSERT OVERWRITE t query",
            "INSERT OVERWRITE t PARTITION (c = v, …) query",
            "INSERT INTO t REPLACE WHERE condition query    -- on partition columns",
            "INSERT INTO t REPLACE USING (partition columns) query",
            "SET spark.sql.sources.partitionOverwriteMode = dynamic",
        ),
    ),
    StatementHelp(
        "DELETE",
        "remove rows, or whole partitions",
        ("[WITH …] DELETE FROM t [[AS] alias] [WHERE condition]",),
    ),
    StatementHelp(
        "UPDATE",
        "change values of rows",
        ("[WITH …] UPDATE t [[AS] alias] SET column = value, … [WHERE condition]",),
    ),
    StatementHelp(
        "MERGE INTO",
        "update, delete and insert rows from a source",
        (
            "[WITH …] MERGE INTO t [AS t] USING source | (query) [AS s] ON condition",
            "WHEN MATCHED [AND condition] THEN UPDATE SET column = value, … | UPDATE SET * | "
            "DELETE",
            "WHEN NOT MATCHED [BY TARGET] [AND condition] THEN INSERT (column, …) VALUES (…) | "
            "INSERT *",
            "WHEN NOT MATCHED BY SOURCE [AND condition] THEN UPDATE SET column = value, … | DELETE",
        ),
    ),
    StatementHelp(
        "COPY INTO",
        "load files into a table, each once; or write rows into files",
        (
            "COPY INTO t [(columns)] FROM 'path' FILE_FORMAT = (TYPE = CSV | JSON | PARQUET | ORC "
            "| AVRO [, option = value, …]) [PATTERN = 'regex'] [FILES = ('a.csv', …)] "
            "[FORCE = TRUE] [ON_ERROR = ABORT_STATEMENT | CONTINUE | SKIP_FILE] "
            "[REJECTED_ROWS = table] [VALIDATE [ALL | n ROWS]]",
            "COPY INTO 'path' FROM t | (query) FILE_FORMAT = (TYPE = … [, option = value, …]) "
            "[OVERWRITE = TRUE] [PARTITION BY (column, …)] [SINGLE = TRUE]",
        ),
    ),
    StatementHelp(
        "CREATE TABLE",
        "make a table, empty or from a query",
        (
            "CREATE TABLE [IF NOT EXISTS] t (column TYPE [NOT NULL] [DEFAULT v] [COMMENT 's'], …) "
            "[PARTITIONED BY (…)] [COMMENT 's'] [TBLPROPERTIES ('k' = 'v', …)]",
            "CREATE TABLE t [PARTITIONED BY (…)] [TBLPROPERTIES (…)] AS query",
            "CREATE TABLE [IF NOT EXISTS] t LIKE other [TBLPROPERTIES (…)]",
            "CREATE OR REPLACE TABLE t …    -- of columns or a query; history is kept",
            "REPLACE TABLE t …              -- the same, if there is a table",
        ),
    ),
    StatementHelp(
        "ALTER TABLE",
        "change columns, options, the name, or drop partitions",
        (
            "ALTER TABLE t ADD COLUMNS (column TYPE [FIRST | AFTER c], …)",
            "ALTER TABLE t DROP COLUMN [IF EXISTS] c",
            "ALTER TABLE t RENAME COLUMN c TO new_name",
            "ALTER TABLE t ALTER COLUMN c TYPE t | COMMENT 's' | FIRST | AFTER d | SET NOT NULL | "
            "DROP NOT NULL | SET DEFAULT v | DROP DEFAULT",
            "ALTER TABLE t SET TBLPROPERTIES ('k' = 'v', …)",
            "ALTER TABLE t UNSET TBLPROPERTIES [IF EXISTS] ('k', …)",
            "ALTER TABLE t RENAME TO new_name",
            "ALTER TABLE t DROP [IF EXISTS] PARTITION (c = v, …), …    -- also <, <=, >, >=, !=",
            "ALTER TABLE t ADD [IF NOT EXISTS] PARTITION (c = v, …)    -- has nothing to do",
            "COMMENT ON TABLE t IS 's' | NULL",
            "ALTER TABLE t CREATE [OR REPLACE] TAG [IF NOT EXISTS] tag [AS OF VERSION n] "
            "[RETAIN n DAYS | HOURS | MINUTES]",
            "ALTER TABLE t REPLACE TAG tag [AS OF VERSION n] [RETAIN n DAYS]",
            "ALTER TABLE t DELETE TAG [IF EXISTS] tag",
            "ALTER TABLE t RENAME TAG tag TO new_name",
        ),
    ),
    StatementHelp(
        "CALL",
        "call a procedure: tags, branches, rollbacks, compaction, expiry, orphans, consumers",
        tuple(f"CALL {procedure.form}" for procedure in PROCEDURES.values()),
    ),
    StatementHelp("DROP TABLE", "remove a table and its files", ("DROP TABLE [IF EXISTS] t",)),
    StatementHelp(
        "TRUNCATE TABLE",
        "remove all rows, or those of partitions",
        ("TRUNCATE TABLE t [PARTITION (c = v, …)]",),
    ),
    StatementHelp(
        "CREATE DATABASE",
        "make a database",
        ("CREATE DATABASE [IF NOT EXISTS] d [COMMENT 's'] [LOCATION 's'] [WITH DBPROPERTIES (…)]",),
    ),
    StatementHelp(
        "ALTER DATABASE",
        "change a database's comment and properties",
        (
            "COMMENT ON DATABASE d IS 's' | NULL",
            "ALTER DATABASE d SET DBPROPERTIES ('k' = 'v', …)",
            "ALTER DATABASE d UNSET DBPROPERTIES ('k', …)",
        ),
    ),
    StatementHelp(
        "DROP DATABASE",
        "remove a database",
        ("DROP DATABASE [IF EXISTS] d [RESTRICT | CASCADE]",),
    ),
    StatementHelp("USE", "choose the database of unqualified names", ("USE [DATABASE] d",)),
    StatementHelp(
        "SHOW",
        "list databases, tables, columns, partitions, options, tags; or a table's definition",
        (
            "SHOW DATABASES | SCHEMAS | NAMESPACES [LIKE 'p*']",
            "SHOW TABLES [IN d] [LIKE 'p*']",
            "SHOW VIEWS [IN d] [LIKE 'p*']",
            "SHOW PROCEDURES",
            "SHOW CURRENT NAMESPACE | DATABASE | SCHEMA",
            "SHOW COLUMNS IN t",
            "SHOW PARTITIONS t [PARTITION (c = v, …)]",
            "SHOW TABLE EXTENDED [IN d] LIKE 'p*' [PARTITION (c = v, …)]",
            "SHOW TBLPROPERTIES t [('k')]",
            "SHOW TAGS t",
            "SHOW CREATE TABLE t    -- or a view",
            "SHOW GRANTS [ON [TABLE] t | ON DATABASE d] [TO grantee]",
        ),
    ),
    StatementHelp(
        "GRANT",
        "let users, roles and groups read or change tables",
        (
            "GRANT scope, … ON [TABLE] t | DATABASE d TO grantee, …",
            "GRANT ROLE role, … TO grantee, …",
            f"a scope is {', '.join(SCOPES)}; a grantee [USER] name, ROLE name or GROUP name; * in "
            "t stands for any text",
        ),
    ),
    StatementHelp(
        "REVOKE",
        "take back what was granted",
        (
            "REVOKE scope, … ON [TABLE] t | DATABASE d FROM grantee, …",
            "REVOKE ROLE role, … FROM grantee, …",
        ),
    ),
    StatementHelp(
        "ANALYZE TABLE",
        "count rows, values and distinct values, and keep the numbers with the table",
        (
            "ANALYZE TABLE t COMPUTE STATISTICS [FOR COLUMNS c, … | FOR ALL COLUMNS]",
            "ANALYZE TABLE t COMPUTE STATISTICS NOSCAN    -- rows of an append table, without a "
            "job",
        ),
    ),
    StatementHelp(
        "REFRESH",
        "has nothing to do: each statement reads the latest snapshot",
        ("REFRESH TABLE t",),
    ),
    StatementHelp(
        "OPTIMIZE",
        "compact a table, or sort its rows: CALL sys.compact",
        ("OPTIMIZE t [WHERE condition on partition columns] [ZORDER BY (columns)]",),
    ),
    StatementHelp(
        "RESTORE",
        "roll a table back: CALL sys.rollback",
        ("RESTORE [TABLE] t TO VERSION AS OF snapshot | 'tag'",),
    ),
    StatementHelp(
        "DESCRIBE",
        "show a table's columns, one column, a database, or what was done to a table",
        (
            "DESCRIBE [TABLE] [EXTENDED] t [column]",
            "DESCRIBE [TABLE] t PARTITION (c = v, …)",
            "DESCRIBE DATABASE d",
            "DESCRIBE DETAIL t    -- one row: place, files, bytes, keys, options",
            "DESCRIBE HISTORY t",
        ),
    ),
    StatementHelp(
        "CREATE VIEW",
        "name a query for everybody; the coordinator or a REST catalog keeps it",
        (
            "CREATE [OR REPLACE] VIEW [IF NOT EXISTS] v [(column [COMMENT 's'], …)] [COMMENT 's'] "
            "[TBLPROPERTIES (…)] AS query",
        ),
    ),
    StatementHelp(
        "ALTER VIEW",
        "change a view's query, name or properties",
        (
            "ALTER VIEW v AS query",
            "ALTER VIEW v RENAME TO w",
            "ALTER VIEW v SET TBLPROPERTIES ('k' = 'v', …)",
            "ALTER VIEW v UNSET TBLPROPERTIES [IF EXISTS] ('k', …)",
        ),
    ),
    StatementHelp("DROP VIEW", "remove a view", ("DROP VIEW [IF EXISTS] v",)),
    StatementHelp(
        "CREATE FUNCTION",
        "name an expression for all users",
        (
            "CREATE [OR REPLACE] FUNCTION [IF NOT EXISTS] f([p type [DEFAULT e] [COMMENT 's'], …]) "
            "[RETURNS type] [COMMENT 's'] RETURN expression",
        ),
    ),
    StatementHelp("DROP FUNCTION", "remove a function", ("DROP FUNCTION [IF EXISTS] f",)),
    StatementHelp(
        "DESCRIBE FUNCTION",
        "show a function's parameters and result",
        ("DESCRIBE FUNCTION [EXTENDED] f",),
    ),
    StatementHelp(
        "SHOW FUNCTIONS",
        "list functions",
        (
            "SHOW FUNCTIONS [IN db] [LIKE 'pattern']",
            "SHOW USER | SYSTEM | ALL FUNCTIONS [IN db] [LIKE 'pattern']",
        ),
    ),
    StatementHelp(
        "CREATE TEMPORARY VIEW",
        "name a query for this Spark session",
        ("CREATE [OR REPLACE] TEMPORARY VIEW v AS query",),
    ),
    StatementHelp(
        "EXPLAIN",
        "show how a statement would run",
        ("EXPLAIN [EXTENDED | FORMATTED | …] statement",),
    ),
)
"""The statements that are offered. Anything else goes to Spark, if it names no Paimon table."""

PROCEDURE_PURPOSES = {
    "alter_function": "change a function that the catalog keeps, by a change in JSON",
    "alter_view_dialect": "keep a view's text for another engine, change or drop it",
    "clear_consumers": "forget consumers, so that they keep no snapshots any more",
    "compact": "merge the files of a table, or of partitions of it",
    "compact_database": "compact each table of a database",
    "compact_manifest": "merge a table's manifests",
    "copy": "copy a table's files into another table",
    "create_function": "keep a function without definitions, which alter_function adds",
    "create_branch": "begin a branch, at a tag or empty",
    "create_tag": "keep a snapshot under a name",
    "create_tag_from_timestamp": "keep the first snapshot since a time under a name",
    "delete_branch": "remove a branch with its snapshots",
    "delete_tag": "remove tags; their snapshots may expire then",
    "drop_function": "remove a function that the catalog keeps",
    "expire_changelogs": "remove changelogs that outlived their snapshots",
    "expire_partitions": "drop partitions that are older than a time",
    "expire_snapshots": "remove old snapshots, with the files that only they need",
    "expire_tags": "remove tags whose time is over, or that are older than a time",
    "fast_forward": "let the table become what a branch is",
    "mark_partition_done": "write the mark _SUCCESS for jobs that wait for a partition",
    "merge_branch": "add the rows of a branch to the table or another branch",
    "migrate_database": "make a table of each of a database of Spark's own",
    "migrate_table": "make a table of one of Spark's own",
    "purge_files": "remove all rows, snapshots, tags and branches, and keep the empty table",
    "remove_orphan_files": "remove files that nothing refers to, as dead writers leave them",
    "remove_unexisting_files": "take data files that are gone out of the table",
    "rename_branch": "give a branch another name",
    "rename_tag": "give a tag another name",
    "repair_earliest_snapshot": "begin the history after a gap, if snapshots were removed by hand",
    "replace_tag": "move a tag to another snapshot",
    "rescale": "change the number of buckets, and write the rows anew",
    "reset_consumer": "let a consumer go on with a snapshot, or forget it",
    "rewrite_file_index": "write the file indexes that the table's options ask for",
    "rollback": "go back to a snapshot or tag; later snapshots are removed",
    "rollback_to_timestamp": "go back to the last snapshot up to a time",
    "rollback_to_watermark": "go back to the last snapshot up to a watermark",
    "trigger_tag_automatic_creation": "create the tags that the table's options ask for",
}
"""What each procedure does, by its name."""

REFUSED = (
    "SHOW BRANCHES",
    "ALTER TABLE … CREATE BRANCH",
)
"""Statements that are recognized but not offered yet, of those that users look for."""


_SYNONYMS = {
    **{name: name for name in COMING},
    "COMPACTION": "COMPACT",
    "VACUUM": "EXPIRE",
    "REPLACE": "UPSERT",
}

_SHORT = {"DESC": "DESCRIBE"}


def help_text(topic: str = "") -> str:
    """Return a line on everything that is offered; or the help on a verb, a statement, a procedure
    of CALL, `cell`, `streams`, or a table option.

    Raises UnknownNameError for another topic.
    """
    wanted = " ".join(topic.split())
    if not wanted:
        return _overview()
    if wanted.lower().lstrip("%") in ("cell", "paimon"):
        return cell_help()
    verbs = [f"%paimon {v.usage}\n    {v.purpose}" for v in VERBS if v.name == wanted.lower()]
    topic_words = [_SHORT.get(word, word) for word in wanted.upper().split()]
    wanted = wanted if wanted.upper() not in _SHORT else topic_words[0]
    for name in (" ".join(topic_words), *topic_words[:1]):
        if name in _SYNONYMS and not verbs:
            return COMING[_SYNONYMS[name]]
    statements = [s for s in STATEMENTS if s.name == wanted.upper()]
    # The first word is enough: `help alter`, `help create`; or the first ones: `help show grants`.
    statements = statements or [s for s in STATEMENTS if s.name.split()[0] == wanted.upper()]
    statements = statements or [
        replace(statement, forms=forms)
        for statement in STATEMENTS
        if (forms := tuple(form for form in statement.forms if _begins(form, topic_words)))
    ]
    if verbs or statements:
        return "\n".join([*verbs, *(_statement(statement) for statement in statements)])
    procedure = PROCEDURES.get(wanted.lower().removeprefix("call ").removeprefix("sys."))
    if procedure is not None:
        return f"CALL {procedure.form}\n    {PROCEDURE_PURPOSES[procedure.name]}{_CALL_MORE}"
    if wanted.lower() == _STREAMS:
        return _streams_help()
    option = OPTIONS.get(wanted.lower())
    if option is not None:
        return _option(option)
    meant = likely_meant(wanted, [*topics(), *OPTIONS])
    hint = meant or nearest(wanted, topics(), what="topics")
    raise UnknownNameError(f"There is no help about `{topic}`.", hint=hint)


def _begins(form: str, words: list[str]) -> bool:
    """Whether a form begins with these words; of words with `|` between, any one may stand."""
    alternatives: list[set[str]] = []
    texts = form.split()
    for before, text in zip(["", *texts], texts, strict=False):
        if before == "|" and alternatives:
            alternatives[-1].add(text)
        elif text != "|":
            alternatives.append({text})
    return len(words) <= len(alternatives) and all(map(contains, alternatives, words))


def topics() -> list[str]:
    """The topics of `help_text`, except table options."""
    statements = (s.name for s in STATEMENTS)
    verbs = (verb.name for verb in VERBS)
    return ["cell", _STREAMS, *verbs, *statements, *COMING, *PROCEDURES]


def cell_help() -> str:
    """The help on a `%%paimon` cell and its options."""
    return "\n".join(
        [
            "%%paimon [OPTION]… [NAME <<]",
            "STATEMENT [; STATEMENT]…",
            "",
            *_columns([(option.usage, option.purpose) for option in CELL_OPTIONS]),
            *_columns([("NAME <<", "keep the result under this name, and show nothing")]),
            "",
            "`:name` in a statement is the value of that variable.",
        ]
    )


def _streams_help() -> str:
    """The help on streams and their options."""
    return "\n".join(
        [
            "session.stream(name, **{OPTION: VALUE, …})",
            "    reads a table, its $audit_log or its $binlog as a streaming DataFrame",
            "session.write_stream(frame, name, checkpoint=FOLDER, mode='append')",
            "    writes a streaming DataFrame; what it returns shows its progress in a notebook,",
            "    with a button that stops it. Modes: append, upsert, complete.",
            "",
            "Options",
            *_columns(list(STREAM_PURPOSES.items())),
        ]
    )


def _overview() -> str:
    return "\n".join(
        [
            "Verbs",
            *_columns([(f"%paimon {verb.usage}", verb.purpose) for verb in VERBS]),
            "",
            "A cell",
            *("  " + line if line else "" for line in cell_help().split("\n")),
            "",
            "Statements (%paimon help STATEMENT shows the forms)",
            *_columns([(statement.name, statement.purpose) for statement in STATEMENTS]),
            "",
            "Streams, from Python: %paimon help streams shows their options.",
            f"Not offered yet: {', '.join(REFUSED)}.",
            "Other statements go to Spark, if they name no Paimon table.",
        ]
    )


def _option(option: OptionDefinition) -> str:
    values = f"one of {', '.join(option.choices)}" if option.choices else _a(option.type)
    default = "no default" if option.default is None else f"default '{option.default}'"
    fixed = "\n    It can't change once the table has a snapshot." if option.immutable else ""
    return f"'{option.key}': {values}, {default}\n    {option.purpose}{fixed}"


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeio" else f"a {noun}"


def _statement(statement: StatementHelp) -> str:
    return "\n".join(
        [f"{statement.name}: {statement.purpose}", *map("    ".__add__, statement.forms)]
    )


_FIRST_WIDTH_MAX = 28
_STREAMS = "streams"
_CALL_MORE = (
    "\n    Name arguments as table => 't'; […] is optional. %%paimon --dry-run says what the call "
    "would do."
)


def _columns(rows: list[tuple[str, str]]) -> list[str]:
    """Lay out rows in two columns; a first cell that is too wide gets a line of its own."""
    lines: list[str] = []
    for first, second in rows:
        if len(first) > _FIRST_WIDTH_MAX:
            lines += [f"  {first}", f"  {'':{_FIRST_WIDTH_MAX}}  {second}"]
        else:
            lines.append(f"  {first:{_FIRST_WIDTH_MAX}}  {second}")
    return lines
