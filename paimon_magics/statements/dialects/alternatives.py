"""Statements to write instead of those that are not offered: hints of errors, and topics of
`%paimon help`.
"""

from __future__ import annotations

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.statements.statement import Refused

COMING: dict[str, str] = {
    "UPSERT": "INSERT INTO a table with a primary key is an upsert: a row replaces the row with "
    "the same key.\n    CREATE TABLE t (id INT, v STRING) TBLPROPERTIES ('primary-key' = 'id', "
    "'bucket' = '1')\n    INSERT INTO t VALUES (1, 'new')\n    The option 'merge-engine' sets "
    "other ways to merge rows: %paimon help merge-engine.",
    "COMPACT": "To compact a table with a primary key:\n    CALL sys.compact('t')    -- all files "
    "of each bucket\n    CALL sys.compact(table => 't', compact_strategy => 'minor')  -- as a "
    "writer would\n    CALL sys.compact(table => 't', where => 'day < \"2026-01-31\"')\n    To see "
    "what would be rewritten, put %%paimon --dry-run in front. An INSERT automatically compacts "
    "the buckets that it writes, unless 'write-only' = 'true'.\n    %paimon health t shows whether "
    "compaction is needed.",
}
"""Topics of `%paimon help` about what other databases call so, and what works today."""

INSTEAD: dict[str, str] = {
    "DELETE": "Write DELETE FROM t WHERE condition.",
    "COPY": "Write COPY INTO t FROM 'path' FILE_FORMAT = (TYPE = CSV); or COPY INTO 'path' FROM t "
    "FILE_FORMAT = (TYPE = PARQUET) to write files.",
    "LOAD": "Write COPY INTO t FROM 'path' FILE_FORMAT = (TYPE = CSV).",
    "EXPORT": "Write COPY INTO 'path' FROM t FILE_FORMAT = (TYPE = PARQUET).",
    "INSERT OVERWRITE DIRECTORY": "Write COPY INTO 'path' FROM (SELECT …) FILE_FORMAT = (TYPE = "
    "PARQUET) OVERWRITE = TRUE.",
    "VACUUM": "Unneeded files are removed when snapshots expire, according to the table's options "
    "'snapshot.time-retained' and 'snapshot.num-retained.max'.",
    "OPTIMIZE": "Write CALL sys.compact('t').",
    "CREATE ROLE": "A role begins with its first grant: GRANT READ ON db.* TO ROLE analysts.",
    "DROP ROLE": "REVOKE what it has: SHOW GRANTS TO ROLE analysts lists that.",
    "EXECUTE IMMEDIATE": "Run the text itself as a statement. In Python, session.run(text) "
    "runs a text that a program has put together.",
    "EXPLAIN ANALYZE": "It would run the statement. EXPLAIN FORMATTED shows the plan; run the "
    "statement to see how long it takes.",
    "ANALYZE TABLE": "It is not needed: Paimon stores row counts, bounds and sizes with each file. "
    "%paimon profile t shows more.",
    "REFRESH": "It is not needed: a query reads the table's latest snapshot.",
    "MSCK": "It is not needed: a table's partitions are in its snapshots.",
    "REPAIR": "It is not needed: a table's partitions are in its snapshots.",
    "CACHE": "Keep a result in the notebook: %%paimon -t arrow -o rows.",
    "LOCK": "It is not needed: a statement is committed whole or not at all.",
    "CREATE": "CREATE TEMPORARY VIEW v AS SELECT … names a query for this Spark session.",
    "COMMENT": "Write COMMENT ON TABLE t IS '…', or ALTER TABLE t ALTER COLUMN c COMMENT '…'.",
    "ALTER DATABASE … SET LOCATION": "A database is found by its name, in a folder of the "
    "warehouse. Connect to a warehouse at that location.",
    "RESTORE": "CALL sys.rollback(table => 't', version => '3') rolls a table back to that "
    "snapshot.",
    "CREATE INDEX": "Tables have no indexes. To find rows faster, use the primary key, partitions "
    "and the option 'file-index.bloom-filter.columns'.",
    "DROP INDEX": "Tables have no indexes.",
    "CREATE TABLE … STORED AS": "Leave it out. For another format than Parquet, write "
    "TBLPROPERTIES ('file.format' = 'orc').",
    "CREATE TABLE … CLUSTERED BY": "Write TBLPROPERTIES ('bucket' = '4', 'bucket-key' = 'id').",
    "CREATE TABLE … GENERATED": "Leave it out, and compute the column in the INSERT. A column may "
    "have a DEFAULT.",
    "CREATE MATERIALIZED": "Write CREATE TABLE t AS SELECT …, and INSERT OVERWRITE t SELECT … to "
    "replace its rows.",
    "CREATE OR REPLACE MATERIALIZED": "Write INSERT OVERWRITE t SELECT …, which replaces all rows "
    "of a table at once.",
    "CREATE EXTERNAL TABLE": "Write CREATE TABLE: tables are stored in the warehouse. Files "
    "elsewhere are read as parquet.`path`.",
    "CREATE TABLE … UNIQUE": "Declare PRIMARY KEY (column): a row replaces the row with the same "
    "key.",
    "CREATE TABLE … REFERENCES": "Leave it out: foreign keys are not checked.",
    "CREATE TABLE … FOREIGN": "Leave it out: foreign keys are not checked.",
    "CREATE TABLE … CHECK": "Leave it out, and filter the rows in the INSERT. NOT NULL is checked.",
    "CREATE TABLE … CLUSTER BY": "Leave it out. PARTITIONED BY (column) and the option 'bucket' "
    "define the layout of the rows.",
    "CREATE TABLE … PARTITIONED BY": "Partitions are columns: add a column, such as day DATE, and "
    "write PARTITIONED BY (day).",
    "ALTER TABLE … ADD CONSTRAINT": "A primary key must be set in CREATE TABLE: create a new table "
    "with PRIMARY KEY (column), and copy the rows.",
    "ALTER TABLE … SET": "Write ALTER TABLE t SET TBLPROPERTIES ('key' = 'value').",
    "INSERT … REPLACE ON": "Write MERGE INTO t USING (SELECT …) AS s ON t.id = s.id WHEN MATCHED "
    "THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *. REPLACE WHERE and REPLACE USING replace "
    "whole partitions.",
    "IDENTIFIER": "Write the name. In Python, session.table(name) takes it from a variable.",
}
"""Hints by the beginning of the statement that is not offered; the longest match counts."""


# The error for a statement that is recognized but not offered.

_LISTED = "%paimon help lists the offered statements."


def refused(statement: Refused) -> UnsupportedStatementError:
    """Return the error for `statement`."""
    name, hint = statement.name, instead_of(statement.kind)
    if "BRANCH" in statement.kind:
        hint = (
            "Use CALL sys.create_branch, sys.rename_branch, sys.delete_branch or sys.fast_forward; "
            f"the system table `{name or 't'}$branches` lists branches."
        )
    about = f" on `{name}`" if name is not None else ""
    return UnsupportedStatementError(
        f"{statement.kind}{about} is not offered yet.",
        hint=hint,
        statement=statement.text,
        position=0,
    )


def instead_of(kind: str) -> str:
    """The alternative to a statement of this kind, found by its first words."""
    prefixes = [words for words in INSTEAD if kind.startswith(words)]
    return INSTEAD[max(prefixes, key=len)] if prefixes else _LISTED
