"""Statements to write instead of those that are not offered: hints of errors, and topics of
`%paimon help`.
"""

from __future__ import annotations

COMING: dict[str, str] = {
    "UPSERT": "INSERT INTO a table with a primary key is an upsert: a row replaces the one of the "
    "same key.\n"
    "    CREATE TABLE t (id INT, v STRING) TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')\n"
    "    INSERT INTO t VALUES (1, 'new')\n"
    "    The option 'merge-engine' says what else may happen: %paimon help merge-engine.",
    "COMPACT": "A table with a primary key is compacted by\n"
    "    CALL sys.compact('t')    -- all files of each bucket\n"
    "    CALL sys.compact(table => 't', compact_strategy => 'minor')  -- as a writer would\n"
    "    CALL sys.compact(table => 't', where => 'day < \"2026-01-31\"')\n"
    "    %%paimon --dry-run before it says what would be rewritten. An INSERT compacts the buckets "
    "that it writes by itself, unless 'write-only' = 'true'.\n"
    "    %paimon health t says whether it is needed.",
}
"""Topics of `%paimon help` about what other databases call so, and what works today."""

INSTEAD: dict[str, str] = {
    "DELETE": "Write DELETE FROM t WHERE condition.",
    "REPLACE": "INSERT INTO replaces the rows of the same key, if the table has a primary key.",
    "COPY": "Read the files in the statement: INSERT INTO t SELECT * FROM csv.`path`. To write "
    "files, use a frame: session.run(query).dataframe.write.csv(path).",
    "LOAD": "Read the files in the statement: INSERT INTO t SELECT * FROM csv.`path`.",
    "EXPORT": "Fetch the rows and write them: outcome.to_arrow(), outcome.to_pandas().",
    "VACUUM": "Unneeded files are removed when snapshots expire, by the table's options "
    "'snapshot.time-retained' and 'snapshot.num-retained.max'.",
    "OPTIMIZE": "Write CALL sys.compact('t').",
    "GRANT": "Access is configured at the coordinator: see docs/coordinator-service.md.",
    "REVOKE": "Access is configured at the coordinator: see docs/coordinator-service.md.",
    "EXPLAIN ANALYZE": "It would run the statement. EXPLAIN FORMATTED shows the plan; run the "
    "statement to see how long it takes.",
    "ANALYZE TABLE": "It is not needed: Paimon keeps rows, bounds and sizes with each file; "
    "%paimon profile t shows more.",
    "REFRESH": "It is not needed: a query reads the table's latest snapshot.",
    "MSCK": "It is not needed: a table's partitions are in its snapshots.",
    "REPAIR": "It is not needed: a table's partitions are in its snapshots.",
    "CACHE": "Keep a result in the notebook: %%paimon -t arrow -o rows.",
    "LOCK": "It is not needed: a statement is committed whole or not at all.",
    "CREATE": "CREATE TEMPORARY VIEW v AS SELECT … names a query for this Spark session.",
    "COMMENT": "Write ALTER TABLE t SET TBLPROPERTIES ('comment' = '…'), or ALTER TABLE t "
    "ALTER COLUMN c COMMENT '…'.",
    "RESTORE": "CALL sys.rollback(table => 't', version => '3') rolls a table back to that "
    "snapshot.",
    "CREATE INDEX": "Tables have no indexes: the primary key and partitions help to find rows, and "
    "so does the option 'file-index.bloom-filter.columns'.",
    "DROP INDEX": "Tables have no indexes.",
    "CREATE TABLE … STORED AS": "Leave it out; TBLPROPERTIES ('file.format' = 'orc') chooses "
    "another format than Parquet.",
    "CREATE TABLE … CLUSTERED BY": "Write TBLPROPERTIES ('bucket' = '4', 'bucket-key' = 'id').",
    "CREATE TABLE … GENERATED": "Leave it out, and compute the column in the INSERT. A column may "
    "have a DEFAULT.",
    "CREATE MATERIALIZED": "Write CREATE TABLE t AS SELECT …, and INSERT OVERWRITE t SELECT … to "
    "make it anew.",
    "CREATE OR REPLACE MATERIALIZED": "Write INSERT OVERWRITE t SELECT …, which replaces all rows "
    "of a table at once.",
    "CREATE TABLE … LIKE": "SHOW CREATE TABLE shows the other table's definition, to be changed.",
    "CREATE EXTERNAL TABLE": "Write CREATE TABLE: tables are stored in the warehouse. Files "
    "elsewhere are read as parquet.`path`.",
    "CREATE TABLE … UNIQUE": "Declare PRIMARY KEY (column): a row replaces the one of its key.",
    "CREATE TABLE … REFERENCES": "Leave it out: keys of other tables are not checked.",
    "CREATE TABLE … FOREIGN": "Leave it out: keys of other tables are not checked.",
    "CREATE TABLE … CHECK": "Leave it out, and filter the rows in the INSERT. NOT NULL is checked.",
    "CREATE TABLE … CLUSTER BY": "Leave it out. PARTITIONED BY (column) and the option 'bucket' "
    "define the layout of the rows.",
    "CREATE TABLE … PARTITIONED BY": "Partitions are columns: add one, such as day DATE, and write "
    "PARTITIONED BY (day).",
    "ALTER TABLE … ADD CONSTRAINT": "A primary key belongs to CREATE TABLE: make a new table with "
    "PRIMARY KEY (column), and copy the rows.",
    "ALTER TABLE … SET": "Write ALTER TABLE t SET TBLPROPERTIES ('key' = 'value').",
    "ALTER TABLE … ADD PARTITION": "A partition begins with its first row: INSERT INTO t PARTITION "
    "(day = '2026-01-31') …",
    "INSERT … REPLACE WHERE": "Write INSERT OVERWRITE t PARTITION (day = '2026-01-31') SELECT ….",
    "IDENTIFIER": "Write the name. In Python, session.table(name) takes it from a variable.",
}
"""Hints by the beginning of the statement that is not offered; the longest match counts."""
