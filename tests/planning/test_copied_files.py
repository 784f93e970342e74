"""COPY INTO without files: the options of FILE_FORMAT, the history of loads, answers' rows."""

from __future__ import annotations

import json

import pytest

from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.copying.file_formats import read_options, write_options
from paimon_magics.planning.copying.load_history import (
    LoadRecord,
    PendingLoad,
    loaded_paths,
    pending_of,
    record_of,
    record_prefix,
)
from paimon_magics.planning.copying.results import FileErrors, loaded
from paimon_magics.statements.copying import FileFormat

RECORD = LoadRecord("file:/data/a.csv", 10, 1_700_000_000_123, 1_700_000_001_000, 3, 2)


def form(kind: str, **options: str | tuple[str, ...]) -> FileFormat:
    return FileFormat(kind, tuple(options.items()))


def test_options_of_csv_become_those_of_sparks_reader() -> None:
    options = read_options(
        form("CSV", FIELD_DELIMITER="|", SKIP_HEADER="1", NULL_IF=("x", "y"),
             EMPTY_FIELD_AS_NULL="TRUE", MULTI_LINE="TRUE"),
        "",
    )  # fmt: skip
    assert options.spark == {"sep": "|", "multiLine": "true"}
    assert options.nulls == ("x", "y", "")
    assert options.has_header and options.header_is_set and not options.by_name


def test_parsed_header_matches_by_name_and_other_types_always_do() -> None:
    assert read_options(form("CSV", PARSE_HEADER="TRUE"), "").by_name
    assert all(read_options(form(kind), "").by_name for kind in ("JSON", "PARQUET", "ORC", "AVRO"))


@pytest.mark.parametrize(
    ("file_format", "message", "hint"),
    [
        (form("XML"), "Unsupported file format type: XML", ""),
        (form("CSVX"), "Unsupported file format type: CSVX", "`CSV`"),
        (form("CSV", SKIP_HEADER="3"), "SKIP_HEADER supports only 0 or 1, got: 3", "one line"),
        (form("CSV", MODE="x"), "Unsupported FILE_FORMAT options for import: MODE", "ON_ERROR"),
        (form("CSV", HEADER="TRUE"), "for import: HEADER", "SKIP_HEADER = 1"),
        (form("CSV", SEP=";"), "for import: SEP", "FIELD_DELIMITER"),
        (form("JSON", FIELD_DELIMITER=";"), "for import: FIELD_DELIMITER", "MULTI_LINE"),
        (form("CSV", QUOTE="''"), "QUOTE is one character", "QUOTE ="),
        (form("CSV", FIELD_DELIMITER=""), "FIELD_DELIMITER is empty", "';'"),
        (form("CSV", MULTI_LINE="yes"), "MULTI_LINE can't be 'yes'", "TRUE"),
        (form("CSV", QUOTE=("a", "b")), "one value, not a list", "QUOTE ="),
        (form("CSV", PARSE_HEADER="TRUE", SKIP_HEADER="1"), "are both set", "Keep one"),
    ],
)
def test_wrong_options_name_the_option_and_the_next_step(
    file_format: FileFormat, message: str, hint: str
) -> None:
    with pytest.raises(InvalidValueError) as raised:
        read_options(file_format, "COPY INTO t")
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_options_of_reading_are_refused_where_files_are_written() -> None:
    assert write_options(form("CSV", HEADER="TRUE", COMPRESSION="GZIP"), "") == {
        "header": "true",
        "compression": "GZIP",
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    }
    chosen = write_options(form("JSON", TIMESTAMP_FORMAT="HH:mm"), "")
    assert chosen["timestampFormat"] == chosen["timestampNTZFormat"] == "HH:mm"
    with pytest.raises(InvalidValueError, match="for export: SKIP_HEADER"):
        write_options(form("CSV", SKIP_HEADER="1"), "")


def test_record_is_written_as_the_connector_writes_it() -> None:
    # The hash is the first 16 digits of the path's SHA-256.
    assert RECORD.name == "load-" + record_prefix("file:/data/a.csv")[5:] + "1700000001000"
    assert len(record_prefix("x")) == len("load-0123456789abcdef-")
    assert json.loads(RECORD.text) == {
        "filePath": "file:/data/a.csv",
        "fileSize": 10,
        "lastModified": 1_700_000_000_123,
        "loadedAt": 1_700_000_001_000,
        "snapshotId": 3,
        "rowsLoaded": 2,
    }
    assert record_of(RECORD.text) == RECORD
    assert record_of('{"filePath":"a"}') is None
    assert record_of(b"\xff") is None


def test_pending_load_survives_its_text_and_a_cut_one_is_none() -> None:
    load = PendingLoad("paimon-magics-abc", 4, 1_700_000_000_000, (RECORD,))
    assert pending_of(load.text) == load
    assert pending_of(load.text[:-5]) is None


@pytest.mark.parametrize(
    ("state", "latest", "is_loaded"),
    [
        ((10, 1_700_000_000_123), 3, True),
        ((11, 1_700_000_000_123), 3, False),  # another size
        ((10, 1_700_000_000_124), 3, False),  # changed
        ((10, 1_700_000_000_123), 2, False),  # rolled back to before the load
    ],
)
def test_file_counts_as_loaded_only_as_it_was(
    state: tuple[int, int], latest: int, is_loaded: bool
) -> None:
    sources = {"file:/data/a.csv": state}
    assert loaded_paths(sources, [RECORD], latest) == ({*sources} if is_loaded else set())


@pytest.mark.parametrize(
    ("seen", "written", "on_error", "status"),
    [
        (None, 3, "ABORT_STATEMENT", "LOADED"),
        (FileErrors(3), 3, "CONTINUE", "LOADED"),
        (FileErrors(), 0, "CONTINUE", "LOADED"),
        (FileErrors(3, 1, "why"), 2, "CONTINUE", "PARTIALLY_LOADED"),
        (FileErrors(3, 3, "why"), 0, "CONTINUE", "LOAD_FAILED"),
        (FileErrors(3, 1, "why"), 0, "SKIP_FILE", "LOAD_FAILED"),
    ],
)
def test_status_of_a_file_follows_from_its_rows_and_errors(
    seen: FileErrors | None, written: int, on_error: str, status: str
) -> None:
    errors = {} if seen is None else {"/a": seen}
    (result,) = loaded({"/a": "a"}, {"/a": written}, errors, on_error)  # type: ignore[arg-type]
    assert (result.status, result.rows_loaded) == (status, written)
    assert result.rows_parsed == (written if seen is None else seen.rows)
