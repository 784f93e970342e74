"""Guesses what a person meant by a statement that can't be read: an idiom of another database, a
variable that is not replaced, a missing `;` or word, a character from a word processor."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.lexing.tokens import (
    IDENTIFIER_KINDS,
    STATEMENT_WORDS,
    Token,
    tokenize,
    word_set,
)

_CLAUSES = word_set("FROM WHERE GROUP HAVING ORDER LIMIT JOIN ON SELECT UNION VALUES INTO BY")
_ALIKE_MIN = 0.7
_NAME_BEHIND = word_set("FROM JOIN INTO TABLE UPDATE . ,")
_PLAIN_QUOTES = "Write texts in plain quotes: 'tea'."
_CHARACTERS: dict[str, tuple[str, str]] = {
    **dict.fromkeys("‘’‚‛′´“”„‟″«»", ("a typographic quote", _PLAIN_QUOTES)),
    **dict.fromkeys("–—−‒", ("a typographic dash", "Write `-`, or `--` before a comment.")),
    "≥": ("not a comparison operator of SQL", "Write `>=`."),
    "≤": ("not a comparison operator of SQL", "Write `<=`."),
    "≠": ("not a comparison operator of SQL", "Write `<>`."),
    "×": ("not an operator of SQL", "Write `*`."),
    "÷": ("not an operator of SQL", "Write `/`."),
    "；": ("a wide semicolon", "Write `;`."),
    "，": ("a wide comma", "Write `,`."),
    "（": ("a wide bracket", "Write `(`."),
    "）": ("a wide bracket", "Write `)`."),
    "：": ("a wide colon", "Write `:`."),
    "…": ("a placeholder for omitted text", "Replace it with the full text."),
    "#": ("not a comment in SQL", "Begin comments with `--`, or write `/* … */`."),
}
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad"
# Words that begin a statement, without those that often continue one.
_BEGINNINGS = STATEMENT_WORDS - word_set("WITH VALUES TABLE FROM MAP REDUCE SET LIST ADD COMMENT")
_QUERIES = word_set("SELECT WITH FROM VALUES TABLE INSERT EXPLAIN")
_BEFORE_QUERY = word_set("INSERT WITH EXPLAIN CREATE REPLACE MERGE")
_GO_ON = word_set("UNION ALL EXCEPT INTERSECT MINUS DISTINCT AS ( ,")
_HELP = {
    "SELECT": "select",
    "INSERT": "insert",
    "CREATE": "create",
    "ALTER": "alter table",
    "DROP": "drop",
    "TRUNCATE": "truncate table",
    "SHOW": "show",
    "DESCRIBE": "describe",
    "DESC": "describe",
    "USE": "use",
    "EXPLAIN": "explain",
    "CALL": "call",
}


@dataclass(frozen=True, slots=True)
class _Guess:
    """The message and hint in place of "can't be read", and the index of the token concerned."""

    message: str
    hint: str
    index: int


def misread(
    statement: str, position: int, message: str = "", hint: str = ""
) -> StatementSyntaxError:
    """Return the error for a statement that can't be read at a position.

    `message` and `hint` are the parser's; they are used if there is no better guess.
    """
    try:
        tokens = tokenize(statement)
    except StatementSyntaxError:
        tokens = ()
    stopped = next((i for i, token in enumerate(tokens) if token.end > position), len(tokens))
    if not message and stopped == len(tokens):
        message, hint = "The statement ends too early.", hint or "Complete it."
    elif not message:
        message = f"The statement can't be read at `{tokens[stopped].text}`."
    is_copy = bool(tokens) and tokens[0].upper == "COPY"  # its parser knows better than a query's
    guess = None if is_copy else _guess(tokens, stopped, statement)
    if guess is not None:
        message = guess.message or message
        place = tokens[guess.index].start if guess.index < len(tokens) else position
        return StatementSyntaxError(message, hint=guess.hint, statement=statement, position=place)
    if not hint and message.startswith("Expected `)`, found") and stopped < len(tokens):
        hint = f"Put a comma before `{tokens[stopped].text}`, or close the bracket there."
    hint = hint or _about(tokens)
    return StatementSyntaxError(message, hint=hint, statement=statement, position=position)


def _guess(tokens: tuple[Token, ...], stopped: int, statement: str) -> _Guess | None:
    for find in (
        _character,
        _idiom,
        _comment,
        _without_semicolon,
        _left_out,
        _comma,
        _misspelt,
        _no_comma,
    ):
        guess = find(tokens, stopped, statement)
        if guess is not None:
            return guess
    return None


def _character(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    for index in (stopped, stopped - 1):
        text = tokens[index].text if 0 <= index < len(tokens) else ""
        if text in _CHARACTERS:
            what, hint = _CHARACTERS[text]
            return _Guess(f"`{text}` is {what}.", hint, index)
        if text and text in _INVISIBLE:
            named = f"U+{ord(text):04X}"
            return _Guess(
                f"The statement has an invisible character ({named}).", "Retype the line.", index
            )
    return None


def _idiom(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    match = idiom_at(tokens, stopped)
    if match is None:
        return None
    idiom, index, texts = match
    names = [t.text for t in tokens[index : index + len(texts)] if t.kind in IDENTIFIER_KINDS]
    name = names[-1] if names else "x"
    if idiom.pattern.startswith("^") and stopped < len(tokens):
        index = stopped  # the pattern is of a whole statement: point at what does not fit
    return _Guess(idiom.message.format(*texts), idiom.hint.format(*texts, name=name), index)


def _comment(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    for index in (stopped, stopped - 1):
        if 0 <= index < len(tokens) - 1 and tokens[index].text == tokens[index + 1].text == "/":
            return _Guess("`//` is not a comment in SQL.", _CHARACTERS["#"][1], index)
    return None


def _without_semicolon(tokens: tuple[Token, ...], stopped: int, statement: str) -> _Guess | None:
    """A second statement that begins on a line of its own, without a semicolon before it."""
    for index in range(min(stopped, len(tokens) - 1), 0, -1):
        token = tokens[index]
        line = statement[: token.start].rpartition("\n")
        if token.upper not in _BEGINNINGS or not line[1] or line[2].strip():
            continue
        before = {t.upper for t in tokens[:index]}
        goes_on = tokens[0].upper in _BEFORE_QUERY and not before & {"SELECT", "VALUES"}
        if token.upper == "SELECT" and (goes_on or tokens[index - 1].upper in _GO_ON):
            continue
        first = tokens[0].upper
        message = f"`{token.text}` begins another statement."
        return _Guess(message, f"End the {first} before it with `;`.", index)
    return None


def _left_out(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    """A missing word that another word needs: BY, or END."""
    for index, token in enumerate(tokens[: stopped + 1]):
        if token.upper not in ("ORDER", "GROUP") or index + 1 == len(tokens):
            continue
        following = tokens[index + 1]
        if following.kind in IDENTIFIER_KINDS and following.upper != "BY":
            return _Guess("BY is missing.", f"Write {token.upper} BY {following.text}.", index)
    words = [token.upper for token in tokens]
    if words.count("CASE") > words.count("END"):
        return _Guess("CASE has no END.", "Write END after its last value.", words.index("CASE"))
    return None


def _comma(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    for place in (stopped - 1, stopped):
        is_behind = 0 < place < len(tokens) and tokens[place - 1].text == ","
        if is_behind and tokens[place].upper in _CLAUSES:
            return _Guess("", f"Leave out the comma before `{tokens[place].text}`.", stopped)
    return None


def _misspelt(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    """A misspelled keyword, which Spark reads as an alias, so that it fails at the next word."""
    if not 0 < stopped <= len(tokens):
        return None
    token = tokens[stopped - 1]
    if tokens[0].upper not in _QUERIES:
        return None
    is_named = stopped > 1 and tokens[stopped - 2].upper in _NAME_BEHIND
    if token.kind != "word" or token.upper in _CLAUSES or is_named:
        return None
    near = difflib.get_close_matches(token.upper, _CLAUSES, n=1, cutoff=_ALIKE_MIN)
    if not near or stopped == len(tokens):
        return None
    return _Guess("", f"Did you mean `{near[0]}` instead of `{token.text}`?", stopped)


def _no_comma(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    """Three names in a row in a SELECT list, where Spark reads the second as an alias."""
    names = tokens[max(stopped - 2, 0) : stopped + 1]
    before = {token.upper for token in tokens[:stopped]}
    if len(names) < 3 or tokens[0].upper not in _QUERIES:
        return None
    if "SELECT" not in before or "FROM" in before:
        return None
    if any(name.kind not in IDENTIFIER_KINDS or name.upper in _CLAUSES for name in names):
        return None
    listed = ", ".join(name.text for name in names)
    return _Guess("", f"Put commas between columns: {listed}.", stopped)


def _about(tokens: tuple[Token, ...]) -> str:
    """The hint for a statement without a guess: where its syntax is shown."""
    first = tokens[0].upper if tokens else ""
    if first in ("SELECT", "WITH"):
        return "Check the text there and just before it."
    if first in _HELP:
        return f"%paimon help {_HELP[first]} shows its syntax."
    return "%paimon help lists the statements."


# Idioms of other databases and tools, and what to write instead here.
#
# `IDIOMS` is a table of token patterns, none of which is valid in Spark SQL. It is searched only
# after a statement could not be read. In a pattern, an upper-case word or a symbol matches itself,
# `a|b` matches one of several, and
#
#     <name>    a name, and no keyword  <word>    a name or keyword  <string>  a text in quotes
#     <number>  a number                <any>     any token          <end>     the statement's end
#     ^         the statement's first token comes next
#     !         the token where reading stopped comes next; what is before it begins the statement
#
# In messages and hints, `{0}`, `{1}`, … are the texts of the matched tokens, in order.


_NO_NAMES = word_set(
    "TABLE TABLES DATABASE SCHEMA VIEW COLUMN COLUMNS PARTITION SELECT VALUES INTO OVERWRITE FROM "
    "WHERE SET TO TYPE NULL LIKE"
)
_UPSERT = (
    "INSERT INTO a table with a primary key replaces the rows of the same key: leave `{0}{rest}` out. "
    "With 'merge-engine' = 'first-row' the first row stays."
)
_VALUE = (
    "Write `:{name}`. Its value is that of the notebook's variable `{name}`, or comes from "
    "session.run(…, parameters={{'{name}': …}}). Names of tables and columns can't be bound."
)
_TABLE = (
    "A table's name can't be bound: write the name itself. In Python, a variable can hold it: "
    'session.table(name), or session.run(f"SELECT … FROM {{{name}}}").'
)
_PYTHON = "A cell that begins with %%paimon holds SQL alone: put Python into a cell of its own."
_SHELL = "A cell that begins with %%paimon holds SQL alone: put it into a cell of its own."
_NUMBERED = "Leave {0} out, and give the numbers in the INSERT, or use uuid() in a STRING column."
_VALUE_OF_X = "Put the value into a variable, say x, and write `:x`."
_AS_OF = "Write VERSION AS OF 3, or TIMESTAMP AS OF '2026-01-31'."
_LIST = "For a list, write {}. For single values, write []."
_JSON = "Write get_json_object(column, '$.key')."
_DELETE_BY = "Write DELETE FROM t WHERE key IN (SELECT …), or MERGE INTO t USING s ON … WHEN MATCHED THEN DELETE."
_COMMITS = "Each statement is committed atomically by itself: leave `{0}` out."


@dataclass(frozen=True, slots=True)
class Idiom:
    """A pattern, the error's message ("" keeps the parser's message), and the hint."""

    pattern: str
    message: str
    hint: str


IDIOMS: tuple[Idiom, ...] = (
    # ---- not SQL at all
    Idiom("^ IMPORT <name>", "This is Python, not SQL.", _PYTHON),
    Idiom("^ FROM <name> IMPORT", "This is Python, not SQL.", _PYTHON),
    Idiom("^ PRINT|DISPLAY|LEN|TYPE (", "This is Python, not SQL.", _PYTHON),
    Idiom("^ FOR <name> IN", "This is Python, not SQL.", _PYTHON),
    Idiom("^ DEF|CLASS <name> (|:", "This is Python, not SQL.", _PYTHON),
    Idiom("^ <name> =", "This is Python, not SQL.", _PYTHON + " `NAME << SELECT …` keeps a result."),
    Idiom("^ <name> . <name> (", "This is Python, not SQL.", _PYTHON),
    Idiom("^ PIP|CONDA|LS|CD <name>", "This is a command of a shell, not SQL.", _SHELL),
    Idiom("^ !|?", "This is a command of the notebook, not SQL.", _SHELL),
    Idiom("^ % % <word>", "A cell can have one cell magic only: `%%{2}` is below another one.", "Remove one of the two lines."),
    Idiom("^ % <word>", "This is a command of the notebook, not SQL.", _SHELL),
    Idiom("^ HELP|TABLES|HISTORY|LAYOUT|HEALTH|SNAPSHOTS|CONFIG|CONNECT|VERSION", "`{0}` is not a statement.", "In a cell of its own, `%paimon help` lists verbs and statements."),
    Idiom("^ \\ D <name>", "`\\d` is psql's.", "Write DESCRIBE {2}."),
    Idiom("^ \\", "Commands with `\\` are psql's.", "SHOW TABLES lists tables, DESCRIBE t shows one, SHOW DATABASES lists databases."),
    Idiom("^ . <word>", "Commands with `.` are SQLite's.", "SHOW TABLES lists tables, DESCRIBE t shows one."),
    Idiom("^ QUIT|EXIT|GO", "`{0}` is not a statement.", "Leave it out."),
    Idiom("^ EXEC|EXECUTE <name>", "Only Paimon's own procedures can be run.", "Write CALL sys.…; `%paimon help call` shows the procedures."),
    Idiom("^ PRAGMA", "PRAGMA is SQLite's and DuckDB's.", "DESCRIBE t shows a table's columns, SET key = value changes a setting of Spark."),
    Idiom("^ ATTACH|DETACH", "A session is connected to one warehouse.", "%paimon connect warehouse=… connects to another one."),
    Idiom("^ BEGIN|COMMIT|ROLLBACK|START|SAVEPOINT", "There are no transactions of several statements.", _COMMITS),
    Idiom("^ UPSERT INTO <name>", "There is no UPSERT.", "INSERT INTO {2} replaces the rows of the same key, if the table has a primary key."),
    Idiom("^ RENAME TABLE <name> TO <name>", "RENAME TABLE is MySQL's.", "Write ALTER TABLE {2} RENAME TO {4}."),
    Idiom("^ SHOW INDEX|INDEXES|KEYS", "Tables have no indexes to list.", "SHOW CREATE TABLE t shows the primary key and the options."),
    Idiom("^ IF|WHILE|CASE|LOOP", "`{0}` is not offered: there are no control-flow statements.", "Put the condition into a WHERE clause, or into Python code around session.run."),
    Idiom("^ BULK INSERT <name> FROM <string>", "BULK INSERT is SQL Server's.", "Write INSERT INTO {2} SELECT * FROM csv.`path`."),
    Idiom("^ USE CATALOG|WAREHOUSE|ROLE", "A session has one catalog: its warehouse's.", "USE names a database of it; %paimon connect warehouse=… connects to another warehouse."),
    Idiom("^ CREATE USER|ROLE", "CREATE {1} is not offered.", "Access is configured at the coordinator: see docs/coordinator-service.md."),
    # ---- variables, as other magics and tools write them
    Idiom("FROM|JOIN|INTO|TABLE|OVERWRITE|UPDATE { { <word> } }", "`{{{{{3}}}}}` is not replaced by a name here.", _TABLE),
    Idiom("FROM|JOIN|INTO|TABLE|OVERWRITE|UPDATE { <word> }", "`{{{2}}}` is not replaced by a name here.", _TABLE),
    Idiom("FROM|JOIN|INTO|TABLE|OVERWRITE|UPDATE $ { <word> }", "`${{{3}}}` is not replaced by a name here.", _TABLE),
    Idiom("FROM|JOIN|INTO|TABLE|OVERWRITE|UPDATE $|@|: <word>", "`{1}{2}` can't be a table.", _TABLE),
    Idiom("FROM|JOIN <word> @ <any>", "`{1}@{3}` is not offered for time travel.", "Write {1} VERSION AS OF 3, or {1} TIMESTAMP AS OF '2026-01-31'."),
    Idiom("{ { <word> } }", "`{{{{{2}}}}}` is not replaced by a value here.", _VALUE),
    Idiom("$ { <word> }", "`${{{2}}}` is not replaced by a value here.", _VALUE),
    Idiom("{ <word> }", "`{{{1}}}` is not replaced by a value here.", _VALUE),
    Idiom("{ { <any>", "`{{{{…}}}}` is not replaced by a value here.", _VALUE_OF_X),
    Idiom("{ <any>", "`{{…}}` is not replaced by a value here.", _VALUE_OF_X),
    Idiom("% ( <word> ) S", "`%({2})s` is not replaced by a value here.", _VALUE.replace("{name}", "{2}")),
    Idiom("! % S", "`%s` is not replaced by a value here.", "Bind parameters have names here: write `:name`."),
    Idiom("! % <word>", "`%{1}` is not replaced by a value here.", _VALUE),
    Idiom("DECLARE|SET @ <word>", "There are no variables with `@`.", "Give a variable of the notebook its value, and write `:{2}` in the statement."),
    Idiom("FROM|JOIN <name> $ <word>", "A system table's name must be in one pair of back-quotes, or in none.", "Write `t${3}`, in back-quotes."),
    Idiom("$|@ <word>", "`{0}{1}` is not replaced by a value here.", _VALUE),
    # ---- queries
    Idiom("LIMIT <number> , <number>", "`LIMIT {1}, {3}` is MySQL's.", "Write LIMIT {3} OFFSET {1}."),
    Idiom("SELECT TOP <number>", "TOP is SQL Server's.", "Write LIMIT {2} at the end of the query."),
    Idiom("SELECT TOP ( <number> )", "TOP is SQL Server's.", "Write LIMIT {3} at the end of the query."),
    Idiom("FETCH FIRST|NEXT <number>", "FETCH … ROWS ONLY is not Spark's.", "Write LIMIT {2}."),
    Idiom("DISTINCT ON (", "DISTINCT ON is PostgreSQL's.", "Write QUALIFY row_number() OVER (PARTITION BY … ORDER BY …) = 1 at the end of the query."),
    Idiom("SAFE_CAST|TRY_CONVERT (", "{0} is not Spark's.", "Write try_cast(value AS TYPE), which is NULL where the value does not fit."),
    Idiom("! => <any>", "`=>` is not a comparison operator.", "Write `>=`."),
    Idiom("= <", "`=<` is not a comparison operator.", "Write `<=`."),
    Idiom("VERSION|TIMESTAMP|SYSTEM_TIME|SYSTEM_VERSION OF", "AS is missing.", "Write {0} AS OF."),
    Idiom("FROM|JOIN <name> AS OF VERSION|TIMESTAMP|SNAPSHOT|TAG", "The words of `AS OF {4}` are in the wrong order.", _AS_OF),
    Idiom("FROM|JOIN <name> VERSION|SNAPSHOT <number>", "AS OF is missing.", "Write {1} VERSION AS OF {3}."),
    Idiom("! VERSION|TIMESTAMP AS OF", "{0} AS OF must come directly after a table's name.", "Put its alias, WHERE and the rest after it: FROM t {0} AS OF … AS a WHERE …."),
    Idiom("~ <string>", "`~` is PostgreSQL's.", "Write RLIKE {1}."),
    Idiom("- > >", "`->>` is PostgreSQL's and MySQL's.", _JSON),
    Idiom("-> > <any>", "`->>` is PostgreSQL's and MySQL's.", _JSON),
    Idiom("-> <string>", "`->` can't extract a JSON value here.", _JSON),
    Idiom("IS <number>", "IS takes NULL, TRUE, FALSE or DISTINCT FROM.", "Write `= {1}`."),
    Idiom("IS <string>", "IS takes NULL, TRUE, FALSE or DISTINCT FROM.", "Write `= {1}`."),
    Idiom("LIKE|ILIKE|RLIKE %", "The pattern of {0} must be in quotes.", "Write {0} '%…%'."),
    Idiom("BETWEEN <any> TO", "BETWEEN needs AND.", "Write BETWEEN {1} AND …."),
    Idiom("* EXCLUDE (", "EXCLUDE is Snowflake's and DuckDB's.", "Write * EXCEPT (column)."),
    Idiom("* REPLACE (", "* REPLACE is BigQuery's and DuckDB's.", "Write * EXCEPT (column), and add the new value as a column."),
    Idiom("ARRAY [", "ARRAY[…] is PostgreSQL's and BigQuery's.", "Write array(1, 2); explode(array(1, 2)) makes a row of each element."),
    Idiom("SAMPLE <number>", "SAMPLE is Snowflake's.", "Write TABLESAMPLE ({1} PERCENT) or TABLESAMPLE ({1} ROWS)."),
    Idiom("OVER PARTITION|ORDER", "The window must be in brackets.", "Write OVER (PARTITION BY … ORDER BY …)."),
    Idiom("+|- <number> DAY|DAYS|HOUR|HOURS|MINUTE|MINUTES|SECOND|SECONDS|WEEK|WEEKS|MONTH|MONTHS|YEAR|YEARS", "INTERVAL is missing.", "Write {0} INTERVAL {1} {2}."),
    Idiom("^ SET <string> =", "A setting's name must not be in quotes.", "Write SET key = value."),
    Idiom("& &", "`&&` is not SQL.", "Write AND, and OR for `||`, which joins texts."),
    Idiom("<name> AT|BEFORE (", "`{1} (…)` is Snowflake's.", "Write {0} TIMESTAMP AS OF '2026-01-31 12:00:00' or {0} VERSION AS OF 3."),
    Idiom("<name> NOT IN : <word>", "IN needs a list in brackets.", _LIST.replace("{}", "NOT array_contains(:{4}, {0})").replace("[]", "NOT IN (:first, :second)")),
    Idiom("<name> IN : <word>", "IN needs a list in brackets.", _LIST.replace("{}", "array_contains(:{3}, {0})").replace("[]", "IN (:first, :second)")),
    Idiom("IN <string>", "IN needs a list.", "Write IN ({1})."),
    Idiom("TABLESAMPLE <number>", "TABLESAMPLE needs brackets.", "Write TABLESAMPLE ({1} PERCENT) or TABLESAMPLE ({1} ROWS)."),
    Idiom("FROM|JOIN|INTO|TABLE|UPDATE <string>", "{1} is a string, not a table.", "Put a name in back-quotes: `orders`. Files are read as csv.`path` or parquet.`path`."),
    Idiom("SELECT|FROM|JOIN|,|BY|WHERE|ON|AND|OR|= [ <name> ]", "Names in square brackets are SQL Server's.", "Write {2}, or `{2}` in back-quotes."),
    Idiom("FROM|JOIN|INTO|TABLE|OVERWRITE|UPDATE <name> - <word>", "A name with `-` must be in back-quotes.", "Write `{1}-{3}`, in back-quotes."),
    Idiom("IF EXIST", "EXISTS is misspelled.", "Write IF EXISTS."),
    Idiom("IF NOT EXIST", "EXISTS is misspelled.", "Write IF NOT EXISTS."),
    # ---- INSERT
    Idiom("! VALUE (", "VALUES is misspelled.", "Write VALUES (…)."),
    Idiom("^ INSERT OVERWRITE INTO <name>", "OVERWRITE takes the place of INTO.", "Write INSERT OVERWRITE {3}, which replaces rows, or INSERT INTO {3}."),
    Idiom("^ INSERT ALL|FIRST", "One INSERT writes one table.", "Write a statement for each table, with `;` between them."),
    Idiom("ON CONFLICT", "ON CONFLICT is PostgreSQL's and SQLite's.", _UPSERT.replace("{rest}", " CONFLICT …")),
    Idiom("ON DUPLICATE KEY", "ON DUPLICATE KEY is MySQL's.", _UPSERT.replace("{rest}", " DUPLICATE KEY …")),
    Idiom("INSERT IGNORE", "INSERT IGNORE is MySQL's.", "Write INSERT INTO. With 'merge-engine' = 'first-row' a table keeps the first row of a key."),
    Idiom("INSERT OR <name>", "INSERT OR {2} is SQLite's.", "Write INSERT INTO, which replaces the rows of the same key where the table has a primary key."),
    Idiom("^ INSERT <name> VALUES|SELECT|(", "INTO is missing.", "Write INSERT INTO {1}."),
    Idiom("^ INSERT INTO <name> SET", "INSERT … SET is MySQL's.", "Write INSERT INTO {2} (columns) VALUES (values)."),
    Idiom("^ INSERT INTO <name> ( <string>", "{4} is a string, not a column.", "Write names without quotes, or in back-quotes."),
    Idiom("RETURNING", "RETURNING is not offered.", "Leave it out, and select the rows afterwards."),
    Idiom("PARTITION <name> =", "The partition must be in brackets.", "Write PARTITION ({1} = …)."),
    # ---- DELETE and UPDATE
    Idiom("^ DELETE <name> WHERE|<end>", "FROM is missing.", "Write DELETE FROM {1}."),
    Idiom("^ DELETE FROM <name> USING", "DELETE … USING is PostgreSQL's.", _DELETE_BY),
    Idiom("^ DELETE FROM <name> <name> USING", "DELETE … USING is PostgreSQL's.", _DELETE_BY),
    Idiom("^ DELETE FROM <name> AS <name> USING", "DELETE … USING is PostgreSQL's.", _DELETE_BY),
    Idiom("^ DELETE <name> FROM <name>", "DELETE only changes the table after FROM.", _DELETE_BY),
    Idiom("^ UPDATE <name> JOIN|INNER|LEFT", "UPDATE … JOIN is MySQL's.", "Look values up in a subquery, SET a = (SELECT …), or write MERGE INTO."),
    Idiom("^ DELETE|UPDATE ! LIMIT", "LIMIT can't be written here.", "Leave it out. DELETE and UPDATE change all rows that WHERE selects, such as WHERE id IN (SELECT id FROM t LIMIT 10)."),
    Idiom("! LIMIT|OFFSET <end>", "The statement ends too early: a number belongs behind {0}.", "Write {0} 10."),
    # ---- definitions
    Idiom("AUTO_INCREMENT|AUTOINCREMENT", "Paimon does not number rows by itself.", _NUMBERED),
    Idiom("IDENTITY (", "Paimon does not number rows by itself.", _NUMBERED),
    Idiom("ENGINE|CHARSET|COLLATE =", "{0} = … is MySQL's.", "Leave it out: tables are Paimon's, and texts are UTF-8."),
    Idiom(") WITH ( <string> =", "WITH ('key' = 'value') is Flink's.", "Write TBLPROPERTIES ({3} = …)."),
    Idiom(") PARTITION BY (", "PARTITION BY belongs to window functions.", "Write PARTITIONED BY (column)."),
    Idiom("DISTKEY|SORTKEY|DISTSTYLE|ENCODE", "{0} is Redshift's.", "Leave it out. PARTITIONED BY (column) and the option 'bucket' define the layout of the rows."),
    Idiom("^ ALTER TABLE <name> MODIFY COLUMN <name> <name>", "MODIFY COLUMN is MySQL's.", "Write ALTER TABLE {2} ALTER COLUMN {5} TYPE {6}."),
    Idiom("^ ALTER TABLE <name> MODIFY <name> <name>", "MODIFY is MySQL's.", "Write ALTER TABLE {2} ALTER COLUMN {4} TYPE {5}."),
    Idiom("^ ALTER TABLE <name> ALTER COLUMN <name> <name> <end>", "TYPE is missing.", "Write ALTER TABLE {2} ALTER COLUMN {5} TYPE {6}."),
    Idiom("^ ALTER TABLE <name> ADD <name> <name>", "COLUMN is missing.", "Write ALTER TABLE {2} ADD COLUMN {4} {5}."),
    Idiom("^ ALTER TABLE <name> DROP <name> <end>", "COLUMN is missing.", "Write ALTER TABLE {2} DROP COLUMN {4}."),
    Idiom("^ ALTER TABLE <name> RENAME <name> TO <name>", "COLUMN is missing.", "Write ALTER TABLE {2} RENAME COLUMN {4} TO {6}."),
    Idiom("^ ALTER TABLE <name> RENAME <name> <end>", "TO is missing.", "Write ALTER TABLE {2} RENAME TO {4}."),
    Idiom("^ CREATE TABLE <name> CLONE|COPY <name>", "CREATE TABLE … {3} is not offered.", "Write CREATE TABLE {2} AS SELECT * FROM {4}, or CREATE TABLE {2} LIKE {4} for its keys and options, then INSERT INTO {2} SELECT * FROM {4}."),
    Idiom("^ CREATE TABLE <name> SHALLOW|DEEP CLONE <name>", "CREATE TABLE … {3} CLONE is not offered.", "Write CREATE TABLE {2} LIKE {5}, then INSERT INTO {2} SELECT * FROM {5}. A branch shares the files of its table: CALL sys.create_branch('{5}', 'name')."),
    Idiom("^ CREATE TABLE <name> <name> <name>", "Columns must be in brackets.", "Write CREATE TABLE {2} ({3} {4})."),
    Idiom("^ CREATE TRANSIENT|UNLOGGED|VOLATILE|HYBRID|DYNAMIC TABLE", "There are no {1} tables.", "Leave {1} out."),
    Idiom("^ CREATE OR REPLACE TRANSIENT|UNLOGGED|VOLATILE|HYBRID|DYNAMIC TABLE", "There are no {3} tables.", "Leave {3} out."),
    Idiom("^ DROP TABLE <name> ,", "DROP TABLE takes one table.", "Write a statement for each, with `;` between them."),
    Idiom("^ DROP TABLE <name> CASCADE|RESTRICT", "DROP TABLE takes no {3}: no other objects depend on a table.", "Leave {3} out."),
    Idiom("^ SHOW COLUMNS <name>", "FROM is missing.", "Write SHOW COLUMNS FROM {2}."),
    Idiom("^ TRUNCATE <name>", "TABLE is missing.", "Write TRUNCATE TABLE {1}."),
    Idiom("^ DROP <name> <end>", "DROP needs the kind of object before `{1}`.", "Write DROP TABLE {1}, DROP DATABASE {1} or DROP VIEW {1}."),
)  # fmt: skip


def idiom_at(tokens: tuple[Token, ...], stopped: int) -> tuple[Idiom, int, tuple[str, ...]] | None:
    """Find the first idiom in a statement that could not be read at the token `stopped`.

    Return it with the index of its first token and the texts of its tokens, or None.
    """
    whole = tuple(token for i, token in enumerate(tokens) if not _is_condition(tokens, i))
    for idiom in IDIOMS:
        head, is_cut, tail = idiom.pattern.removeprefix("^ ").partition(" ! ")
        if is_cut and not _fits(tokens, 0, head.split(" ")):
            continue
        parts = (f"! {tail}" if is_cut else idiom.pattern).split(" ")
        at_start, at_stop = parts[0] == "^", parts[0] == "!" and len(parts) > 1
        parts = parts[at_start or at_stop :]
        starts = (0,) if at_start else (stopped,) if at_stop else range(len(tokens))
        of = whole if at_start else tokens
        for start in starts:
            if _fits(of, start, parts):
                return idiom, start, tuple(t.text for t in of[start : start + len(parts)])
    return None


def _is_condition(tokens: tuple[Token, ...], index: int) -> bool:
    """Whether a token is of IF [NOT] EXISTS, which may stand before the name of what a statement
    creates or drops: the words around it mean the same with and without it."""
    for words in (("IF", "NOT", "EXISTS"), ("IF", "EXISTS")):
        for start in range(max(index - len(words) + 1, 1), index + 1):
            if tuple(token.upper for token in tokens[start : start + len(words)]) == words:
                return True
    return False


def _fits(tokens: tuple[Token, ...], start: int, parts: list[str]) -> bool:
    if start + len(parts) - parts.count("<end>") > len(tokens):
        return False
    return all(
        _is(tokens[start + i] if start + i < len(tokens) else None, part)
        for i, part in enumerate(parts)
    )


def _is(token: Token | None, part: str) -> bool:
    match part:
        case "<end>":
            return token is None
        case _ if token is None:
            return False
        case "<any>":
            return True
        case "<name>":
            return token.kind in IDENTIFIER_KINDS and token.upper not in _NO_NAMES
        case "<word>":
            return token.kind in IDENTIFIER_KINDS
        case "<number>" | "<string>":
            return token.kind == part[1:-1]
        case "|":
            return token.text == "|"
        case _:
            return token.kind in ("word", "symbol") and token.upper in part.split("|")
