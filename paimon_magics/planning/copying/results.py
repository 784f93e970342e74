"""The rows that COPY INTO returns, with the columns of Paimon's connector: one for each file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paimon_magics.statements.copying import OnError

COLUMNS = ("file_name", "status", "rows_loaded", "rows_parsed", "errors_seen", "first_error")
"""The columns of the answer."""


@dataclass(frozen=True, slots=True)
class FileErrors:
    """What was seen in a file: its rows, those that can't be loaded, and why the first can't."""

    rows: int = 0
    errors: int = 0
    first_error: str | None = None


@dataclass(frozen=True, slots=True)
class FileResult:
    """What became of a file; the names are those of COLUMNS."""

    file_name: str
    status: str
    rows_loaded: int = 0
    rows_parsed: int = 0
    errors_seen: int = 0
    first_error: str | None = None


def skipped(names: Iterable[str]) -> list[FileResult]:
    """Files that were loaded before."""
    return [FileResult(name, "SKIPPED") for name in names]


def loaded(
    names: Mapping[str, str],
    rows: Mapping[str, int],
    seen: Mapping[str, FileErrors],
    on_error: OnError,
) -> list[FileResult]:
    """What became of files, by path: `names` are their names, `rows` how many of their rows were
    written. `seen` is what a check has found; without it, all rows were loaded."""
    results = []
    for path, name in names.items():
        written = rows.get(path, 0)
        file = seen.get(path) or FileErrors(written)
        if not file.errors:
            status = "LOADED"
        elif on_error == "SKIP_FILE" or not written:
            status = "LOAD_FAILED"
        else:
            status = "PARTIALLY_LOADED"
        results.append(FileResult(name, status, written, file.rows, file.errors, file.first_error))
    return results


def checked(names: Mapping[str, str], seen: Mapping[str, FileErrors]) -> list[FileResult]:
    """What VALIDATE has found: `VALID`, or `INVALID` for a file with rows that can't be loaded."""
    results = []
    for path, name in names.items():
        file = seen.get(path, FileErrors())
        status = "INVALID" if file.errors else "VALID"
        results.append(FileResult(name, status, 0, file.rows, file.errors, file.first_error))
    return results


def is_recorded(result: FileResult) -> bool:
    """Whether the file counts as loaded: rows of it were, or it has no rows that can't be."""
    return result.status in ("LOADED", "PARTIALLY_LOADED")


def columns(results: Sequence[FileResult]) -> dict[str, list[object]]:
    """The answer's columns."""
    return {name: [getattr(result, name) for result in results] for name in COLUMNS}
