CREATE TABLE t (k INT, v STRING)
INSERT INTO t VALUES (1,'a')
INSERT INTO t VALUES (2,'b')
CALL sys.create_tag('t','x',1)
CALL sys.create_branch('t','br','x')
CALL sys.purge_files('t')
SELECT * FROM t
-- wait 2
INSERT INTO t VALUES (3,'c')
SELECT * FROM t
CREATE TABLE u (k INT, v STRING) TBLPROPERTIES ('primary-key'='k','bucket'='1','changelog-producer'='input')
INSERT INTO u VALUES (1,'a')
INSERT INTO u VALUES (1,'b')
CALL sys.purge_files(table => 'u')
INSERT INTO u VALUES (7,'b')
SELECT * FROM u
CALL sys.purge_files(table => 'nope')
