CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('snapshot.num-retained.min'='1','snapshot.num-retained.max'='1')
INSERT INTO t VALUES (1,'a')
INSERT INTO t VALUES (2,'b')
INSERT INTO t VALUES (3,'c')
-- wait 3
INSERT INTO t VALUES (4,'d')
SELECT * FROM t
DELETE FROM t WHERE k = 2
INSERT OVERWRITE t VALUES (9,'z')
-- wait 2
INSERT INTO t VALUES (10,'zz')
SELECT * FROM t
CREATE TABLE u (k INT, v STRING) TBLPROPERTIES ('primary-key'='k','bucket'='1','snapshot.num-retained.min'='1','snapshot.num-retained.max'='1','changelog-producer'='lookup','changelog.num-retained.min'='10','changelog.num-retained.max'='20')
INSERT INTO u VALUES (1,'a')
INSERT INTO u VALUES (1,'b')
INSERT INTO u VALUES (2,'c')
-- wait 2
INSERT INTO u VALUES (1,'d')
SELECT * FROM u
CALL sys.compact(table => 'u', compact_strategy => 'full')
INSERT INTO u VALUES (5,'d')
SELECT * FROM u
CREATE TABLE w (k INT, v STRING) TBLPROPERTIES ('primary-key'='k','snapshot.num-retained.min'='1','snapshot.num-retained.max'='2')
INSERT INTO w VALUES (1,'a')
INSERT INTO w VALUES (1,'b')
INSERT INTO w VALUES (2,'c')
UPDATE w SET v = 'q' WHERE k = 1
-- wait 2
MERGE INTO w USING (SELECT 2 AS k, 'm' AS v UNION ALL SELECT 3, 'n') s ON w.k = s.k WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
SELECT * FROM w
