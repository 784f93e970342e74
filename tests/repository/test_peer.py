"""How `make peer-tests` takes SQL out of Scala, compares outcomes, and says what may differ."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.peer.accepted import Accepted, accepted, reason
from tests.peer.comparison import differences
from tests.peer.source_sql import scenarios_of

SCALA = '''
class SomeTest extends Base {
  // test("in a comment") { sql("SELECT 0") }
  private def helper(): Unit = { sql("SELECT 1") }

  test("plain") {
    withTable("a") {
      val options = "'k' = 'v'"
      sql(s"""
             |CREATE TABLE a (i INT)
             |TBLPROPERTIES ($options)
             |""".stripMargin)
      sql("INSERT INTO a " + "VALUES (1), ('it''s \\"2\\"')")
      checkAnswer(spark.table("a"), Seq(1, 2).toDF())
      withSparkSQLConf("x" -> "1") {
        sql(s"SELECT * FROM `$tableName0$$files`")
      }
    }
  }
  test("with a helper") { helper() }
  test("computed") { sql(s"SELECT ${1 + 1}") }
  test("frames") { sql("SELECT 1").write.save() }
  test("each") { Seq("orc", "avro").foreach { format => sql(s"SELECT '$format'") } }
}
'''


def test_sql_of_a_scala_test_is_extracted_in_order() -> None:
    (plain, each), skipped = scenarios_of(SCALA, "SomeTest")
    assert plain.name == "SomeTest: plain"
    assert plain.steps == [
        {"sql": "\nCREATE TABLE a (i INT)\nTBLPROPERTIES ('k' = 'v')\n"},
        {"sql": "INSERT INTO a VALUES (1), ('it''s \"2\"')"},
        {"sql": "SELECT * FROM a"},
        {"conf": {"x": "1"}},
        {"sql": "SELECT * FROM `T$files`"},
        {"conf": {"x": None}},
        {"sql": "DROP TABLE IF EXISTS a"},
    ]
    assert each.steps == [{"sql": "SELECT 'orc'"}]
    assert [name for name, _ in skipped] == [
        "SomeTest: with a helper",
        "SomeTest: computed",
        "SomeTest: frames",
    ]


def test_differing_steps_are_named_and_consequences_of_refusals_marked() -> None:
    statements = ["CREATE TABLE a (i INT)", "SELECT * FROM a", "SELECT 1", "SELECT 2", "SELECT x"]
    scenario = {"name": "t", "steps": [{"sql": text} for text in statements]}
    rows = {"columns": [["i", "int"]], "rows": [[1], [2]], "count": 2}
    turned = rows | {"rows": [[2], [1]]}
    refused = {"error": "not offered"}
    theirs = [{}, rows, rows, rows, refused]
    ours = [refused, refused, turned, rows | {"columns": [["i", "bigint"]]}, {"error": "no x"}]
    actual = list(differences(scenario, ours, theirs))
    assert [(each.number, each.how, each.follows) for each in actual] == [
        (0, "the project refuses", False),
        (1, "the project refuses", True),
        (3, "types differ", False),
    ]
    entries = [Accepted(why="later", project="not OFFERED", statement="create")]
    assert [reason(each, entries) for each in actual] == [
        "later",
        "follows from an earlier step",
        None,
    ]


def test_every_accepted_difference_has_a_reason_and_a_criterion() -> None:
    for entry in accepted():
        assert entry.why
        assert entry.test or entry.statement or entry.project or entry.connector


def test_a_repository_that_cannot_be_cloned_is_named_with_the_next_step(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    command = [sys.executable, "-m", "tests.peer", "--repository", str(missing)]
    command += ["--build", str(tmp_path / "build"), "--connector", "connector.jar"]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 1
    assert str(missing) in process.stderr
    assert "PAIMON_REPOSITORY=" in process.stderr
