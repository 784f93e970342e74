CREATE TABLE t (k INT, v STRING)
CALL sys.rollback('t','1')
INSERT INTO t VALUES (1,'a')
INSERT INTO t VALUES (2,'b')
INSERT INTO t VALUES (3,'c')
INSERT INTO t VALUES (4,'d')
CALL sys.create_tag('t','two',2)
CALL sys.create_tag('t','four',4)
-- t3 is the time of snapshot 3 of t
CALL sys.rollback_to_timestamp(table => 't', timestamp => {t3})
SELECT * FROM t
CALL sys.rollback(table => 't', version => 'two')
SELECT * FROM t
CALL sys.rollback(table => 't', tag => 'four')
CALL sys.rollback(table => 't', snapshot => 7)
CALL sys.rollback(table => 't', snapshot => 2)
CALL sys.rollback(table => 't', version => '1', snapshot => 2)
CALL sys.rollback(table => 't')
-- wait 2
INSERT INTO t VALUES (5,'e')
SELECT * FROM t
CALL sys.rollback(table => 't', version => 'nope')
CALL sys.rollback('t', 1)
SELECT * FROM t
INSERT INTO t VALUES (6,'e')
-- wait 2
INSERT INTO t VALUES (7,'e')
CREATE TABLE e (k INT) TBLPROPERTIES ('snapshot.num-retained.min'='1','snapshot.num-retained.max'='2')
INSERT INTO e VALUES (1)
CALL sys.create_tag('e','one')
INSERT INTO e VALUES (2)
INSERT INTO e VALUES (3)
INSERT INTO e VALUES (4)
CALL sys.rollback('e','one')
SELECT * FROM e
-- wait 2
INSERT INTO e VALUES (5)
SELECT * FROM e
CALL sys.rollback(table => 'e', snapshot => 1)
INSERT INTO e VALUES (6)
SELECT * FROM e
CREATE TABLE c (k INT, v STRING) TBLPROPERTIES ('primary-key'='k','bucket'='1','snapshot.num-retained.min'='1','snapshot.num-retained.max'='1','changelog-producer'='input','changelog.num-retained.min'='10','changelog.num-retained.max'='20')
INSERT INTO c VALUES (1,'a')
CALL sys.create_tag('c','one')
INSERT INTO c VALUES (1,'b')
INSERT INTO c VALUES (1,'c')
INSERT INTO c VALUES (1,'d')
CALL sys.rollback('c','one')
SELECT * FROM c
INSERT INTO c VALUES (1,'e')
-- wait 2
INSERT INTO c VALUES (2,'e')
SELECT * FROM c
CALL sys.rollback_to_watermark(table => 't', watermark => 5)
