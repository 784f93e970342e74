CREATE TABLE t (k INT, v STRING)
INSERT INTO t VALUES (1,'a')
INSERT INTO t VALUES (2,'b')
INSERT INTO t VALUES (3,'c')
INSERT INTO t VALUES (4,'d')
CALL sys.expire_snapshots(table => 't', retain_max => 1, retain_min => 1)
-- wait 2
INSERT INTO t VALUES (5,'e')
SELECT * FROM t
CALL sys.expire_snapshots(table => 't', retain_max => 1)
INSERT OVERWRITE t VALUES (6,'f')
CALL sys.expire_snapshots(table => 't', retain_max => 1, retain_min => 1)
-- wait 2
INSERT INTO t VALUES (7,'e')
CREATE TABLE p (id INT, dt STRING) PARTITIONED BY (dt)
INSERT INTO p VALUES (1,'2020-01-01'),(2,'2020-02-02'),(3,'2999-12-31')
CALL sys.expire_partitions(table => 'p', expiration_time => '1 d', timestamp_formatter => 'yyyy-MM-dd', timestamp_pattern => '$dt')
SELECT * FROM p
-- wait 2
INSERT INTO p VALUES (1,'2020-01-01')
CALL sys.expire_partitions(table => 'p', expiration_time => '1 d', timestamp_formatter => 'yyyy-MM-dd', timestamp_pattern => '$dt')
CALL sys.expire_partitions(table => 'p', expiration_time => '1 d', timestamp_formatter => 'yyyy-MM-dd', timestamp_pattern => '$dt')
SELECT * FROM p
CREATE TABLE pk (id INT, dt STRING) PARTITIONED BY (dt) TBLPROPERTIES ('primary-key'='id,dt','bucket'='1')
INSERT INTO pk VALUES (1,'2020-01-01'),(2,'2020-02-02'),(3,'2999-12-31')
INSERT INTO pk VALUES (1,'2020-01-01'),(2,'2020-02-02')
CALL sys.expire_partitions(table => 'pk', expiration_time => '1 d', timestamp_formatter => 'yyyy-MM-dd', timestamp_pattern => '$dt', max_expires => 1)
CALL sys.expire_partitions(table => 'pk', expiration_time => '1 d', timestamp_formatter => 'yyyy-MM-dd', timestamp_pattern => '$dt', max_expires => 1)
SELECT * FROM pk
CREATE TABLE pe (id INT, dt STRING) PARTITIONED BY (dt) TBLPROPERTIES ('partition.expiration-time'='1 d','partition.timestamp-formatter'='yyyy-MM-dd','partition.timestamp-pattern'='$dt','partition.expiration-check-interval'='0 s')
INSERT INTO pe VALUES (1,'2020-01-01'),(2,'2999-02-02')
SELECT * FROM pe
INSERT INTO pe VALUES (3,'2020-01-01')
SELECT * FROM pe
CALL sys.expire_tags(table => 't')
CALL sys.create_tag(table => 't', tag => 'tt', time_retained => '1 s')
-- wait 2
CALL sys.expire_tags(table => 't')
CREATE TABLE cl (k INT, v STRING) TBLPROPERTIES ('primary-key'='k','bucket'='1','changelog-producer'='input','snapshot.num-retained.min'='1','snapshot.num-retained.max'='1','changelog.num-retained.min'='1','changelog.num-retained.max'='3')
INSERT INTO cl VALUES (1,'a')
INSERT INTO cl VALUES (1,'b')
INSERT INTO cl VALUES (1,'c')
INSERT INTO cl VALUES (1,'d')
INSERT INTO cl VALUES (1,'e')
INSERT INTO cl VALUES (1,'f')
-- wait 2
INSERT INTO cl VALUES (1,'g')
SELECT * FROM cl
