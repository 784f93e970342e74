CREATE TABLE t (k INT, v STRING)
CALL sys.create_branch('t','early')
INSERT INTO t VALUES (1,'a')
CALL sys.create_tag('t','one')
CALL sys.create_branch('t','b1','one')
CALL sys.create_branch('t','b1','one')
CALL sys.create_branch(table => 't', branch => 'b1', tag => 'one', ignoreIfExists => 'true')
CALL sys.create_branch('t','b2')
CALL sys.create_branch('t','b3','nope')
CALL sys.create_branch('t','main')
CALL sys.create_branch('t','')
CALL sys.create_branch('t','12')
INSERT INTO `t$branch_b1` VALUES (2,'b')
SELECT * FROM `t$branch_b1`
SELECT * FROM t
INSERT INTO `t$branch_b2` VALUES (3,'c')
SELECT * FROM `t$branch_b2`
SELECT branch_name FROM `t$branches`
CALL sys.fast_forward('t','b1')
SELECT * FROM t
-- wait 2
INSERT INTO t VALUES (4,'d')
SELECT * FROM t
CALL sys.fast_forward('t','b1')
SELECT * FROM t
CALL sys.fast_forward('t','nope')
CALL sys.fast_forward('t','early')
CALL sys.fast_forward('t','main')
CALL sys.delete_branch('t','b1')
CALL sys.delete_branch('t','nope')
CALL sys.delete_branch('t','b2,early')
SELECT branch_name FROM `t$branches`
INSERT INTO t VALUES (5,'e')
CREATE TABLE f (k INT, v STRING)
INSERT INTO f VALUES (1,'a')
INSERT INTO f VALUES (2,'b')
CALL sys.create_tag('f','one',1)
CALL sys.create_branch('f','x','one')
INSERT INTO `f$branch_x` VALUES (20,'bb')
CALL sys.create_tag('f$branch_x','onx',2)
CALL sys.fast_forward('f','x')
SELECT * FROM f
INSERT INTO f VALUES (30,'bb')
-- wait 2
INSERT INTO f VALUES (31,'bb')
SELECT * FROM f
CREATE TABLE g (k INT, v STRING)
CALL sys.create_branch('g','x')
INSERT INTO `g$branch_x` VALUES (20,'bb')
CALL sys.fast_forward('g','x')
SELECT * FROM g
CREATE TABLE h (k INT, v STRING)
INSERT INTO h VALUES (1,'bb')
CALL sys.create_branch('h','x')
INSERT INTO `h$branch_x` VALUES (20,'bb')
CALL sys.fast_forward('h','x')
SELECT * FROM h
ALTER TABLE `h$branch_x` ADD COLUMN z INT
DESCRIBE `h$branch_x`
INSERT INTO `h$branch_x` VALUES (21,'bb',3)
CALL sys.fast_forward('h','x')
SELECT * FROM h
CALL sys.create_branch('h$branch_x','y')
DROP TABLE `h$branch_x`
CREATE TABLE j (k INT, v STRING)
INSERT INTO j VALUES (1,'bb')
CALL sys.create_tag('j','t1')
CALL sys.create_branch('j','x','t1')
CALL sys.delete_tag('j','t1')
SELECT * FROM `j$branch_x`
SELECT tag_name FROM `j$branch_x$tags`
ALTER TABLE j RENAME TO jj
SELECT * FROM `jj$branch_x`
INSERT INTO `jj$branch_x` VALUES (5,'q')
CALL sys.fast_forward('jj','x')
SELECT * FROM jj
