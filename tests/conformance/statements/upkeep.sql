CREATE TABLE t (k INT, v STRING)
CALL sys.compact_manifest('t')
INSERT INTO t VALUES (1,'a')
INSERT INTO t VALUES (2,'b')
INSERT INTO t VALUES (3,'c')
CALL sys.compact_manifest('t')
SELECT count(*) FROM `t$manifests`
CALL sys.compact_manifest('t')
DELETE FROM t WHERE k = 1
CALL sys.compact_manifest(table => 't', dry_run => true)
CALL sys.compact_manifest('t')
SELECT count(*) FROM `t$manifests`
-- wait 2
INSERT INTO t VALUES (4,'c')
SELECT * FROM t
CALL sys.remove_orphan_files(table => 't', older_than => '2999-01-01 00:00:00')
CALL sys.remove_orphan_files(table => 't')
CALL sys.remove_unexisting_files('t')
CALL sys.repair_earliest_snapshot('t', 1)
CALL sys.trigger_tag_automatic_creation('t')
TRUNCATE TABLE t
SELECT * FROM t
INSERT INTO t VALUES (4,'c')
ANALYZE TABLE t COMPUTE STATISTICS
ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS
SELECT snapshot_id, mergedRecordCount FROM `t$statistics`
INSERT INTO t VALUES (5,'c')
CREATE TABLE r (k INT, v STRING) TBLPROPERTIES ('primary-key'='k','bucket'='1')
INSERT INTO r VALUES (1,'a'),(2,'b')
ALTER TABLE r SET TBLPROPERTIES ('bucket'='2')
CALL sys.rescale(table => 'r', bucket_num => 2)
SELECT * FROM r
INSERT INTO r VALUES (3,'a')
CALL sys.rewrite_file_index('t')
CALL sys.reset_consumer('t','c',1)
SELECT * FROM `t$consumers`
CALL sys.clear_consumers('t')
CALL sys.copy(source_table => 't', target_table => 't2')
SELECT * FROM t2
CREATE TABLE pt (k INT, dt STRING) PARTITIONED BY (dt) TBLPROPERTIES ('metastore.partitioned-table'='true')
INSERT INTO pt VALUES (1,'a'),(2,'b')
SHOW PARTITIONS pt
ALTER TABLE pt ADD PARTITION (dt='c')
SHOW PARTITIONS pt
CALL sys.mark_partition_done(table => 'pt', partitions => 'dt=a')
ALTER TABLE pt DROP PARTITION (dt='a')
SELECT * FROM pt
SELECT `partition`, record_count, file_count FROM `pt$partitions`
CREATE TABLE ext (k INT) LOCATION '{elsewhere}/ext'
CREATE TABLE ext2 (k INT) TBLPROPERTIES ('path'='{elsewhere}/ext2')
CREATE TABLE csvt (k INT, v STRING) USING csv
INSERT INTO csvt VALUES (1,'a')
SELECT * FROM csvt
CREATE TABLE ft (k INT, v STRING) TBLPROPERTIES ('type'='format-table','file.format'='parquet')
CREATE TABLE badtype (k INT) TBLPROPERTIES ('bucket'='x')
CREATE TABLE badpk (k INT) TBLPROPERTIES ('primary-key'='nope')
CREATE TABLE dup (k INT, k INT)
CREATE TABLE dyn (k INT, v STRING) TBLPROPERTIES ('primary-key'='k')
INSERT INTO dyn VALUES (1,'a')
INSERT INTO dyn VALUES (1,'b')
DELETE FROM dyn WHERE k = 1
SELECT * FROM dyn
CREATE OR REPLACE TEMPORARY VIEW tv AS SELECT 1
CREATE VIEW v AS SELECT * FROM t
CREATE TABLE vt (id INT, v VARIANT, b BINARY, ts TIMESTAMP_NTZ, tz TIMESTAMP, d DECIMAL(10,2), c CHAR(3), vc VARCHAR(5), i INTERVAL DAY)
CREATE TABLE vt (id INT, v VARIANT, b BINARY, ts TIMESTAMP_NTZ, tz TIMESTAMP, d DECIMAL(10,2), c CHAR(3), vc VARCHAR(5))
INSERT INTO vt SELECT 1, parse_json('{"a":1}'), X'00FF', TIMESTAMP_NTZ '2020-01-01 00:00:00', TIMESTAMP '2020-01-01 00:00:00', 1.25, 'ab', 'cde'
SELECT id, to_json(v), b, ts, tz, d, c, vc FROM vt
DESCRIBE vt
SHOW CREATE TABLE vt
CREATE TABLE like1 LIKE vt
SHOW CREATE TABLE like1
