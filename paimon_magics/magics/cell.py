"""A `%%paimon` cell: runs its statements, and keeps, converts or shows the result.

A result that will be shown is fetched before the cell ends, so that a failing job fails the cell,
not only its display.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paimon_magics.errors import PaimonMagicsError, StatementSyntaxError
from paimon_magics.magics.namespace import Variables
from paimon_magics.magics.options import CellOptions, read_cell
from paimon_magics.session.frontend import is_attended

if TYPE_CHECKING:
    from paimon_magics.magics.configuration import PaimonMagics
    from paimon_magics.session.outcome import Outcome

_MAGIC = "%%paimon"


def with_empty_body(lines: list[str]) -> list[str]:
    """Add a blank line below a single `%%paimon` line. IPython applies this to a cell before it
    looks for magics; without a body it would refuse the cell, `%%paimon --help` too."""
    text = "".join(lines).strip()
    if "\n" not in text and text.split()[:1] == [_MAGIC]:
        return [f"{text}\n", "\n"]
    return lines


# IPython leaves such functions out when it asks whether a cell is complete. A terminal would run
# `%%paimon` at once otherwise, before anybody could type the statement.
with_empty_body.has_side_effects = True  # type: ignore[attr-defined]


def run_cell(magics: PaimonMagics, line: str, body: str) -> object:
    """Run the cell and return its value. None for `NAME <<`, and for `--help` and an empty cell,
    which both print the help.

    Raises errors of ours, with a place in the cell's text where possible.
    """
    if not body.strip():
        _check_no_verb(line)
    options, text = read_cell(line, body)
    if options.help or not (line.strip() or text.strip()):
        from paimon_magics.magics.help import cell_help

        print(cell_help())
        return None
    if not text.strip():
        raise StatementSyntaxError(
            "The cell has no statement.",
            hint="Statements begin on the line below %%paimon; %%paimon --help shows how.",
        )
    try:
        outcome = _run(magics, options, text)
        result = _converted(outcome, options.type or magics.result_type)
        if result is outcome and options.assigned is None and outcome.dataframe is not None:
            outcome.page()
    except PaimonMagicsError as error:
        _place_in_cell(error, text)
        raise
    name = options.assigned or options.out
    if name is not None:
        magics.namespace_shell.push({name: result})
    return None if options.assigned is not None else result


def _check_no_verb(line: str) -> None:
    """Raise StatementSyntaxError if the line of an empty cell has a verb of `%paimon`."""
    from paimon_magics.magics.line import VERBS

    if line.split()[:1] and line.split()[0] in {verb.name for verb in VERBS}:
        raise StatementSyntaxError(
            f"`%%paimon {line.strip()}` begins a cell of SQL, and no SQL follows.",
            hint=f"A verb takes one %, as in: %paimon {line.strip()}",
        )


def _run(magics: PaimonMagics, options: CellOptions, text: str) -> Outcome:
    session = magics.session()
    variables = Variables(magics.namespace_shell)
    if options.explain:
        return session.explain(text, variables, frames=variables)
    if options.preview:
        return session.preview(text, variables, frames=variables)
    is_asked = magics.confirm and not (options.yes or options.dry_run)
    # A program that runs notebooks is not asked: nobody could answer.
    is_asked = is_asked and is_attended(magics.namespace_shell)
    limit = magics.limit if options.limit is None else options.limit
    outcome = session.run(
        text,
        variables,
        limit=limit,
        dry_run=options.dry_run,
        include_buffer=options.include_buffer,
        wait=options.wait,
        frames=variables,
        confirm=not is_asked,
    )
    if options.limit is None:
        outcome.show_at_most(magics.shown_rows(session))
    return outcome


def _converted(outcome: Outcome, result_type: str) -> object:
    """Convert the outcome to the requested type; an outcome without rows stays an Outcome."""
    if outcome.dataframe is None:
        return outcome
    match result_type:
        case "spark":
            return outcome.dataframe
        case "arrow":
            return outcome.to_arrow()
        case "pandas":
            return outcome.to_pandas()
        case "polars":
            return outcome.to_polars()
        case _:
            return outcome


def _place_in_cell(error: PaimonMagicsError, cell: str) -> None:
    """Convert an error's position in its statement to one in the cell, if the cell has the
    statement's text only once."""
    statement = error.statement
    if not statement or error.position is None or cell.count(statement) != 1:
        return
    error.position += cell.index(statement)
    error.statement = cell
    error.tell_place()
