CREATE TABLE r (k INT, v STRING)
CALL sys.create_branch('r','b1')
CALL sys.rename_branch('r','nope','b5')
CALL sys.rename_branch('r','b1','b2')
SELECT branch_name FROM `r$branches`
CREATE TABLE m (k INT, v STRING)
INSERT INTO m VALUES (1,'a')
CALL sys.create_tag('m','one')
CALL sys.create_branch('m','x','one')
INSERT INTO `m$branch_x` VALUES (2,'b')
CALL sys.merge_branch(table => 'm', source_branch => 'x')
SELECT * FROM m
INSERT INTO m VALUES (3,'c')
CALL sys.merge_branch(table => 'm', source_branch => 'nope')
CALL sys.merge_branch(table => 'm', source_branch => 'x', target_branch => 'main')
SELECT * FROM m
