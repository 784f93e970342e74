"""Statements to write instead of those that are not offered: hints of errors, and topics of
`%paimon help`.
"""

from __future__ import annotations

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.statements.statement import Refused, TableName

COMING: dict[str, str] = {
    "UPSERT": "INSERT INTO a table with a primary key is an upsert: a row replaces the row with "
    "the same key.\n    CREATE TABLE t (id INT, v STRING) TBLPROPERTIES ('primary-key' = 'id', "
    "'bucket' = '1')\n    INSERT INTO t VALUES (1, 'new')\n    The option 'merge-engine' sets "
    "other ways to merge rows: %paimon help merge-engine.",
    "EXPIRE": "Snapshots expire after commits, by the options 'snapshot.time-retained' and "
    "'snapshot.num-retained.min'.\n    CALL sys.expire_snapshots(table => 't', retain_max => 10)  "
    "-- removes more now\n    CALL sys.remove_orphan_files(table => 't')               -- files of "
    "writers that died\n    CALL sys.expire_tags(table => 't')                       -- tags whose "
    "time is over\n    %%paimon --dry-run counts what would go, --preview says who keeps the rest. "
    "%paimon help expire_snapshots shows a procedure's form.",
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
    "VACUUM": "Snapshots expire after commits, with the files that only they need, by the table's "
    "options: ALTER TABLE {t} SET TBLPROPERTIES ('snapshot.time-retained' = '7 d'). To remove more "
    "now: CALL sys.expire_snapshots(table => '{t}', retain_max => 10). Files of writers that died: "
    "CALL sys.remove_orphan_files(table => '{t}').",
    "SUMMARIZE": "Write %paimon profile {t} in a cell of its own; or ANALYZE TABLE {t} COMPUTE "
    "STATISTICS FOR ALL COLUMNS, and read {t}$statistics.",
    "CREATE ROLE": "A role begins with its first grant: GRANT READ ON db.* TO ROLE analysts.",
    "DROP ROLE": "REVOKE what it has: SHOW GRANTS TO ROLE analysts lists that.",
    "EXECUTE IMMEDIATE": "Run the text itself as a statement. In Python, session.run(text) "
    "runs a text that a program has put together.",
    "/*+ OPTIONS": "This hint is Flink's. Write the options of a read behind the table's name: "
    "FROM {t} WITH ('scan.snapshot-id' = '1').",
    "EXPLAIN ANALYZE": "It would run the statement. EXPLAIN FORMATTED shows the plan; run the "
    "statement to see how long it takes.",
    "ANALYZE TABLES": "Name each table: ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS.",
    "ANALYZE TABLE … PARTITION": "Paimon keeps statistics of the whole table: leave PARTITION out. "
    "SELECT * FROM t$partitions has the rows, files and bytes of each partition.",
    "REFRESH": "It is not needed: a query reads the table's latest snapshot.",
    "MSCK": "It is not needed: a table's partitions are in its snapshots.",
    "REPAIR": "It is not needed: a table's partitions are in its snapshots.",
    "CACHE": "Keep a result in the notebook: %%paimon -t arrow -o rows.",
    "LOCK": "It is not needed: a statement is committed whole or not at all.",
    "CREATE": "CREATE TEMPORARY VIEW v AS SELECT … names a query for this Spark session.",
    "COMMENT": "Write COMMENT ON TABLE t IS '…', or ALTER TABLE t ALTER COLUMN c COMMENT '…'.",
    "ALTER DATABASE … SET LOCATION": "A database is found by its name, in a folder of the "
    "warehouse. Connect to a warehouse at that location.",
    "REPLACE": "INSERT INTO a table with a primary key replaces the row with the same key: write "
    "INSERT INTO {t} VALUES …. To replace whole partitions: INSERT INTO {t} REPLACE WHERE …; to "
    "replace the table: CREATE OR REPLACE TABLE {t} AS SELECT ….",
    "RESTORE TABLE … TO TIMESTAMP": "Find its snapshot by DESCRIBE HISTORY {t}, and write RESTORE "
    "TABLE {t} TO VERSION AS OF that; or CALL sys.rollback_to_timestamp('{t}', milliseconds since "
    "1970).",
    "CREATE INDEX": "Tables have no indexes. To find rows faster, use the primary key, partitions "
    "and the option 'file-index.bloom-filter.columns'.",
    "DROP INDEX": "Tables have no indexes.",
    "CREATE TABLE … STORED AS": "Leave it out. For another format than Parquet, write "
    "TBLPROPERTIES ('file.format' = 'orc').",
    "CREATE TABLE … CLUSTERED BY": "Write TBLPROPERTIES ('bucket' = '4', 'bucket-key' = 'id').",
    "CREATE TABLE … GENERATED": "Leave it out, and compute the column in the INSERT. A column may "
    "have a DEFAULT.",
    "CREATE TABLE … GENERATED AS IDENTITY": "Leave it out, and number the rows: INSERT INTO {t} "
    "SELECT row_number() OVER (ORDER BY …) + (SELECT coalesce(max(id), 0) FROM {t}), …; or use "
    "uuid() in a STRING column.",
    "CREATE VIEW … WITH SCHEMA": "Leave it out: a view keeps the columns that it had when it was "
    "made, and its values are cast to their types.",
    "CREATE VIEW … PARTITIONED": "Leave it out: a view has no rows of its own. The conditions of a "
    "query on it choose the files of the tables that it reads.",
    "ALTER VIEW … DIALECT": "CALL sys.alter_view_dialect(view => 'v', action => 'add', engine => "
    "'flink', query => 'SELECT …') adds one; the actions `update` and `drop` change it.",
    "ALTER VIEW … WITH SCHEMA": "CREATE OR REPLACE VIEW v AS SELECT … gives it the columns of now.",
    "DROP VIEW …": "Leave the last word out: DROP VIEW drops the view alone. Other views on it "
    "stay, and can't be read.",
    "CREATE MATERIALIZED": "Write CREATE TABLE t AS SELECT …, and INSERT OVERWRITE t SELECT … to "
    "replace its rows.",
    "CREATE OR REPLACE MATERIALIZED": "Write INSERT OVERWRITE t SELECT …, which replaces all rows "
    "of a table at once.",
    "CREATE EXTERNAL TABLE": "Write CREATE TABLE {t}: tables are stored in the warehouse. Files "
    "elsewhere are loaded by CREATE TABLE {t} AS SELECT * FROM parquet.`path`.",
    "CREATE TABLE … UNIQUE": "Declare PRIMARY KEY (column): a row replaces the row with the same "
    "key.",
    "CREATE TABLE … REFERENCES": "Leave it out: foreign keys are not checked.",
    "CREATE TABLE … FOREIGN": "Leave it out: foreign keys are not checked.",
    "CREATE TABLE … CHECK": "Leave it out, and filter the rows: INSERT INTO {t} SELECT … WHERE the "
    "condition. NOT NULL is checked.",
    "CREATE TABLE … CLUSTER BY": "Leave it out, and sort the rows of an append table: CALL "
    "sys.compact(table => '{t}', order_strategy => 'zorder', order_by => 'a,b'). PARTITIONED BY "
    "(column) and the option 'bucket' define the layout of new rows.",
    "ALTER TABLE … CLUSTER BY": "To sort the rows of an append table: CALL sys.compact(table => "
    "'{t}', order_strategy => 'zorder', order_by => 'a,b').",
    "CREATE TABLE … PARTITIONED BY": "Partitions are columns: add a column, such as day DATE, and "
    "write PARTITIONED BY (day).",
    "ALTER TABLE … ADD PRIMARY": "A primary key must be set in CREATE TABLE: create a new table "
    "with PRIMARY KEY (column), and copy the rows.",
    "ALTER TABLE … ADD UNIQUE": "Create a new table with PRIMARY KEY (column), and copy the rows: "
    "a row replaces the row with the same key.",
    "ALTER TABLE … ADD FOREIGN": "Leave it out: foreign keys are not checked.",
    "ALTER TABLE … ADD CHECK": "Leave it out, and filter the rows: INSERT INTO {t} SELECT … WHERE "
    "the condition. NOT NULL of CREATE TABLE is checked.",
    "ALTER TABLE … SET": "Write ALTER TABLE t SET TBLPROPERTIES ('key' = 'value').",
    "INSERT … REPLACE ON": "Write MERGE INTO t USING (SELECT …) AS s ON t.id = s.id WHEN MATCHED "
    "THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *. REPLACE WHERE and REPLACE USING replace "
    "whole partitions.",
    "path_to_descriptor": "BLOB columns are not written here. Store the files' bytes in a BINARY "
    "column: INSERT INTO t SELECT path, content FROM binaryFile.`folder`; or their paths in a "
    "STRING column.",
    "descriptor_to": "Descriptors are of BLOB columns, which are read as bytes here.",
    "try_descriptor_to": "Descriptors are of BLOB columns, which are read as bytes here.",
    "IDENTIFIER": "Write the name. In Python, session.table(name) takes it from a variable.",
}
"""Hints by the beginning of the statement that is not offered; the longest match counts."""


# The error for a statement that is recognized but not offered.

_LISTED = "%paimon help lists the offered statements."


def refused(statement: Refused) -> UnsupportedStatementError:
    """Return the error for `statement`."""
    name = statement.name
    hint = instead_of(statement.kind, name)
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


def instead_of(kind: str, name: TableName | None = None) -> str:
    """The alternative to a statement of this kind, found by its first words; for the table `name`,
    as far as it is known."""
    prefixes = [words for words in INSTEAD if kind.startswith(words)]
    hint = INSTEAD[max(prefixes, key=len)] if prefixes else _LISTED
    return hint.replace("{t}", "t" if name is None else str(name))
