"""The documentation names everything that is offered, and its examples do what it says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

import paimon_magics
from paimon_magics import errors
from paimon_magics.errors import SetupError
from paimon_magics.magics.configuration import PaimonMagics
from paimon_magics.magics.help import REFUSED, STATEMENTS, StatementHelp, help_text
from paimon_magics.magics.line import VERBS, Verb
from paimon_magics.magics.options import CELL_OPTIONS, Option
from paimon_magics.session.merge_builder import MergeBuilder
from paimon_magics.session.reports.administration import Administration
from paimon_magics.session.reports.surface import Reporting
from paimon_magics.session.streams import Stream
from paimon_magics.settings import Settings
from paimon_magics.statements.definitions import (
    AlterView,
    CreateFunction,
    CreateView,
    DropFunction,
    DropView,
)
from paimon_magics.statements.grammar import parsing
from paimon_magics.statements.grammar.parsing import parse_cell, parse_statement
from paimon_magics.statements.lexing.tokens import split_cell
from paimon_magics.statements.statement import (
    AlterDatabase,
    ChangeGrants,
    CreateTable,
    ShowGrants,
    StatementText,
)
from paimon_magics.statements.subjects import Statement
from paimon_magics.statements.table_changes import AlterTable, TableChange
from tests.repository.test_tracked_files import tracked_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_magics.session.session import Session

DOCS = Path(__file__).resolve().parents[2] / "docs"
README = DOCS.parent / "README.md"
PARAMETERS = {"day": "2026-11-20"}

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def examples(text: str, language: str = "sql") -> list[str]:
    return [body for found, body in _FENCE.findall(text) if found == language]


def offered_and_refused() -> tuple[str, str]:
    offered, _, refused = read("statements.md").partition("\n## Not offered yet\n")
    assert refused
    return offered, refused


def table_rows(text: str) -> dict[str, list[str]]:
    """The rows of a page's tables, by the text of their first cell."""
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): [cell.strip(" `") for cell in row[1:]] for row in rows}


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[Session]:
    from paimon_magics.session.opening import connect

    with connect(tmp_path / "warehouse", spark=spark) as session:
        yield session
    for key in ("spark.sql.session.timeZone", "spark.sql.sources.partitionOverwriteMode"):
        spark.conf.unset(key)  # the examples set them


@pytest.mark.parametrize("option", CELL_OPTIONS, ids=lambda option: option.flags[-1])
def test_every_option_of_a_cell_is_documented(option: Option) -> None:
    assert option.usage in table_rows(read("magics.md"))


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_verb_is_documented(verb: Verb) -> None:
    assert f"%paimon {verb.usage}" in table_rows(read("magics.md"))


@pytest.mark.parametrize(
    ("name", "trait"),
    PaimonMagics.class_traits(config=True).items(),
    ids=PaimonMagics.class_traits(config=True),
)
def test_every_configured_name_is_documented_with_its_default(name: str, trait: Any) -> None:
    default = {} if name == "catalog" else trait.default_value
    assert table_rows(read("magics.md"))[name][0] == repr(default)


def test_every_setting_is_documented() -> None:
    assert {field.name for field in fields(Settings)} <= set(table_rows(read("magics.md")))


def test_every_option_of_the_coordinator_is_documented() -> None:
    from paimon_magics.coordinator.process.arguments import parser

    options = {action.option_strings[-1] for action in parser()._actions} - {"--help"}
    assert options <= set(table_rows(read("coordinator-service.md")))


def test_documented_tree_of_errors_matches_the_code() -> None:
    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    assert tree in read("errors.md")
    classes = [name for name in errors.__all__ if name.endswith("Error")]
    headings = re.findall(r"^##+ (\w+)$", read("errors.md"), re.MULTILINE)
    assert sorted(headings) == sorted(set(classes) - {"PaimonMagicsError"})


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.name)
def test_every_statement_of_the_help_is_documented(statement: StatementHelp) -> None:
    assert statement.name in offered_and_refused()[0]


def test_help_has_every_statement_of_the_grammar() -> None:
    begun = [words for words, _ in parsing._READERS]
    begun += [("SHOW", *words) for words in parsing._SHOW_READERS]
    refused = {("COMMENT", "ON"), ("REPLACE", "TABLE")}  # read in order to be refused by name
    for words in set(begun) - refused:
        shown = help_text(" ".join(words))
        first = "DESCRIBE" if words == ("DESC",) else words[0]
        assert first in shown and words[-1].removeprefix("DESC") in shown, words


@pytest.mark.parametrize("kind", REFUSED)
def test_every_refusal_of_the_help_is_documented(kind: str) -> None:
    assert kind in " ".join(offered_and_refused()[1].split())


def test_every_kind_of_statement_and_change_has_an_example() -> None:
    found: set[str] = set()
    for example in examples(offered_and_refused()[0]):
        for statement in parse_cell(example):
            found.add(type(statement).__name__)
            if isinstance(statement, AlterTable):
                found.update(type(change).__name__ for change in statement.changes)
    kinds = {kind.__name__ for kind in get_args(Statement) + get_args(TableChange)}
    assert kinds - found == {"Refused"}


def test_every_class_of_statement_is_a_kind() -> None:
    classes = {kind.__name__ for kind in StatementText.__subclasses__()}
    assert {kind.__name__ for kind in get_args(Statement)} == classes


def test_every_metadata_table_is_documented() -> None:
    from paimon_magics.tables.system_tables.registry import METADATA_TABLES

    offered = offered_and_refused()[0]
    assert [name for name in METADATA_TABLES if f"`{name}`" not in offered] == []


@pytest.mark.spark
def test_the_examples_of_statements_run(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").mkdir()
    monkeypatch.chdir(tmp_path / "files")
    for example in examples(offered_and_refused()[0]):
        for statement, _ in split_cell(example):
            asks = ChangeGrants | ShowGrants | AlterDatabase | CreateView | AlterView | DropView
            if isinstance(parse_statement(statement), asks | CreateFunction | DropFunction):
                refused = (SetupError, errors.UnsupportedStatementError)
                with pytest.raises(refused, match="coordinator"):
                    session.run(statement)
                continue
            if "with_tax" in statement:  # which the catalog could not keep
                with pytest.raises(errors.PaimonMagicsError, match="with_tax"):
                    session.run(statement)
                continue
            outcome = session.run(statement, PARAMETERS)
            assert str(outcome), statement


@pytest.mark.spark
def test_the_examples_of_reading_run(session: Session) -> None:
    session.run(
        "CREATE DATABASE shop; USE shop;"
        "CREATE TABLE orders (id BIGINT NOT NULL, amount INT) "
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1');"
        "INSERT INTO orders VALUES (1, 10)"
    )
    for example in examples(read("reading.md")):
        for statement, _ in split_cell(example):
            assert str(session.run(statement)), statement
    _, table, frames = examples(read("reading.md"), "python")
    assert eval(table, {"session": session}).count() == 1
    exec(frames, {"session": session})


def test_the_page_on_python_lists_every_public_method() -> None:
    owners = {
        "Session": paimon_magics.Session,
        "Merge": MergeBuilder,
        "Stream": Stream,
        "Reports": Reporting,
        "Administration": Administration,
        "Outcome": paimon_magics.Outcome,
    }
    first, *rest = re.split(r"^## (.+)\n", read("python-api.md"), flags=re.MULTILINE)
    parts = dict(zip(rest[::2], rest[1::2], strict=True))
    for heading, owner in owners.items():
        told = set(re.findall(r"`(\w+)`", parts[heading]))
        fields = getattr(owner, "__dataclass_fields__", {})
        public = {name for name in dir(owner) if not name.startswith("_")} - set(fields)
        assert public <= told, public - told
        methods = re.findall(r"^\| (`.+?`) \|", parts[heading], re.MULTILINE)
        for name in re.findall(r"`(\w+)`", " ".join(methods)):
            assert hasattr(owner, name) or name in {*fields, "query"}, name
    for name in ("connect", "active_session", "doctor", "register"):
        assert f"`paimon_magics.{name}" in first


@pytest.mark.spark
def test_sql_and_frames_give_the_same_rows_on_the_page_on_python(session: Session) -> None:
    from pyspark.sql import functions as F

    spark = session.spark
    for name in ("orders", "written"):
        session.run(
            f"CREATE TABLE {name} (id INT, item STRING, amount INT, day STRING) PARTITIONED BY "
            "(day) TBLPROPERTIES ('primary-key' = 'id,day', 'bucket' = '1');"
            f"INSERT INTO {name} VALUES (1, 'tea', 3, 'mon'), (2, 'milk', 2, 'mon');"
            f"INSERT INTO {name} VALUES (2, 'milk', 4, 'mon'), (3, 'jam', 1, 'tue')"
        )
    given = {
        "session": session,
        "F": F,
        "df": spark.createDataFrame([(1, "Ann"), (9, "Bob")], "id INT, name STRING"),
        "more": spark.createDataFrame([(9, "oil", 7, "tue")], session.table("orders").schema),
    }
    pairs = re.findall(r"^\| `(.+?)` \| `(.+)` \|$", read("python-api.md"), re.MULTILINE)
    assert len(pairs) >= 18
    for sql, call in pairs:
        ran = session.run(sql, frames={"df": given["df"], "more": given["more"]})
        if sql.startswith("SELECT"):
            assert sorted(eval(call, given).collect()) == sorted(ran.dataframe.collect()), sql
            continue
        eval(call.replace('"orders"', '"written"'), given)
        both = [sorted(session.table(name).collect()) for name in ("orders", "written")]
        assert both[0] == both[1], sql


@pytest.mark.spark
def test_examples_of_the_page_for_pyspark_behave_as_described(session: Session) -> None:
    spark = session.spark
    orders = (
        "(id INT, item STRING, day STRING) PARTITIONED BY (day);"
        "INSERT INTO shop.orders VALUES (1, 'tea', 'mon'), (2, 'milk', 'mon')"
    )
    session.run(f"CREATE DATABASE shop; CREATE TABLE shop.orders {orders}")
    session.run("CREATE TABLE orders PARTITIONED BY (day) AS SELECT * FROM shop.orders")
    spark.sql("CREATE DATABASE shop")  # of Spark's own
    given = {"session": session, "spark": spark}
    given["df"] = spark.createDataFrame([(9, "jam", "tue")], "id INT, item STRING, day STRING")
    table = read("coming-from-pyspark.md").partition("| --- |")[2]
    try:
        rows = table_rows(table)
        assert len(rows) == 27
        for call, (ours, does) in rows.items():
            if does == "is refused":
                with pytest.raises(errors.UnsupportedStatementError, match="is a Paimon table"):
                    eval(call, given)
            elif does.startswith("fails"):
                with pytest.raises(Exception, match="paimon"):
                    eval(call, given)
            else:
                found = eval(call, given)
                if does == "reads it":
                    assert found.collect() == eval(ours, given).collect()
                elif does == "makes a table of Spark's own":
                    (name,) = re.findall(r'saveAsTable\("(\w+)"\)', call)
                    spark.sql(f"DROP TABLE spark_catalog.default.{name}")
            eval(ours, given)
    finally:
        spark.catalog.setCurrentDatabase("default")
        spark.sql("DROP DATABASE shop CASCADE")


@pytest.mark.spark
def test_the_examples_of_own_data_run(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {"session": session}
    for language, example in _FENCE.findall(read("your-own-data.md")):
        if language == "python":
            exec(example, variables)
        else:
            for statement, _ in split_cell(example):
                assert str(session.run(statement, frames=variables)), statement
    tables = session.run("SHOW TABLES").to_arrow()["tableName"].to_pylist()
    names = ["by_day", "from_csv", "from_database", "from_pandas", "from_parquet"]
    assert [name for name in tables if name in names] == names
    assert {session.table(name).count() for name in names[1:]} == {3}


def test_every_option_of_a_stream_is_documented() -> None:
    from paimon_magics.planning.reads.stream_points import STREAM_OPTIONS

    assert set(STREAM_OPTIONS) == set(table_rows(read("streams.md")))


@pytest.mark.spark
def test_the_examples_of_streams_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {}
    for example in examples(read("streams.md"), "python"):
        # A folder without a beginning lies where Spark's JVM was started.
        exec(example.replace('"checkpoints/', f'"{tmp_path}/checkpoints/'), variables)
    session = variables["session"]
    assert session.run("SELECT * FROM copy ORDER BY id").to_pylist() == [{"id": 1, "item": "tea"}]
    assert str(variables["stream"]).startswith(
        "Stream(default.copy, ended: 2 epochs, 3 rows, snapshot 2)"
    )
    session.close()


def test_every_read_option_is_documented() -> None:
    from paimon_magics.planning.reads.read_points import READ_OPTIONS

    assert [key for key in READ_OPTIONS if f"`{key}`" not in read("reading.md")] == []


@pytest.mark.spark
def test_examples_of_unsupported_statements_are_refused(session: Session) -> None:
    session.run(
        "CREATE DATABASE shop; USE shop;"
        "CREATE TABLE orders (id BIGINT NOT NULL, day STRING NOT NULL) PARTITIONED BY (day) "
        "TBLPROPERTIES ('primary-key' = 'day,id', 'bucket' = '1');"
        "INSERT INTO orders VALUES (1, 'x');"
        "CREATE TABLE happenings (id BIGINT)"
    )
    *refused, unwritable = examples(offered_and_refused()[1])
    for example in refused:
        for statement, _ in split_cell(example):
            with pytest.raises(errors.UnsupportedStatementError):
                session.run(statement)
    session.run(unwritable)
    assert isinstance(parse_statement(unwritable), CreateTable)
    with pytest.raises(errors.UnsupportedStatementError):
        session.run("INSERT INTO pictures VALUES (1, X'61')")


@pytest.mark.spark
def test_examples_of_errors_give_the_documented_messages(session: Session) -> None:
    import paimon_magics

    fences = _FENCE.findall(read("errors.md"))
    (_, setup), *rest = fences
    session.run(setup)
    pairs = list(zip(rest[::2], rest[1::2], strict=True))
    assert len(pairs) == 9
    for (language, example), (shown_as, expected) in pairs:
        assert shown_as == "text"
        with pytest.raises(errors.PaimonMagicsError) as raised:
            if language == "python":
                eval(example, {"paimon_magics": paimon_magics})
            else:
                session.run(example).page()
        assert raised.value.text() == expected.rstrip("\n")


@pytest.mark.spark
def test_the_readmes_first_cell_runs(session: Session) -> None:
    first = examples(README.read_text(encoding="utf-8"))[0]
    magic, _, body = first.partition("\n")
    assert magic == "%%paimon"
    assert session.run(body).to_arrow().to_pylist()[0]["dt"] == "2026-11-20"
    assert str(session.table("orders").count()) == "2"


def test_the_readmes_loop_over_changes_ends_with_the_newest_snapshot(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.run("CREATE TABLE orders (id INT); INSERT INTO orders VALUES (7171)")
    _, _, loop = README.read_text(encoding="utf-8").partition("for change in session.changes(")
    exec("for change in session.changes(" + loop.partition("```")[0], {"session": session})
    assert "7171" in capsys.readouterr().out


def test_links_between_pages_lead_somewhere() -> None:
    pages = [README, DOCS.parent / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
    broken = []
    for page in pages:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            found = page.parent / name if name else page
            if not found.exists() or (anchor and anchor not in anchors(found)):
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_pages_name_existing_files() -> None:
    root = DOCS.parent
    pages = [README, root / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
    roots = [root, *(root / name for name in ("paimon_magics", "widgets", "docs", "notebooks"))]
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(
            r"`((?:[\w.-]+/)+(?:[\w-]+\.(?:py|md|ipynb))?)`", page.read_text(encoding="utf-8")
        )
    }
    assert len(named) > 30
    found = {(page, name) for page, name in named if any((at / name).exists() for at in roots)}
    assert named - found == set()


def test_texts_of_the_code_name_existing_files() -> None:
    files = [name for name, _ in tracked_texts()]
    ends = {
        name[at:] for name in files for at in range(len(name)) if at == 0 or name[at - 1] == "/"
    }
    missing = [
        f"{name}: {path}"
        for name, text in tracked_texts()
        if name.startswith("paimon_magics/") and name.endswith(".py")
        for path in re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|md|ts))`", text)
        if path not in ends
    ]
    assert missing == []


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
