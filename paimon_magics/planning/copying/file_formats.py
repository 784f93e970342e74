"""The options of FILE_FORMAT, and those of Spark's readers and writers that they mean.

The names, values and defaults are those of Paimon's connector (`CopyOptions.scala`), with ORC,
Avro and a few options more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paimon_magics.errors import InvalidValueError, nearest
from paimon_magics.statements.copying import FileFormat

TYPES = ("CSV", "JSON", "PARQUET", "ORC", "AVRO")
"""The types of files."""

TEXT_TYPES = ("CSV", "JSON")
"""The types whose values are texts, which are cast."""

_NULLS = ("NULL_IF", "EMPTY_FIELD_AS_NULL")
_IMPORT = {
    "CSV": (
        *("FIELD_DELIMITER", "SKIP_HEADER", "PARSE_HEADER", "QUOTE", "ESCAPE", *_NULLS),
        *("MULTI_LINE", "ENCODING", "REPLACE_INVALID_CHARACTERS", "COMPRESSION"),
    ),
    "JSON": ("MULTI_LINE", *_NULLS, "ENCODING", "REPLACE_INVALID_CHARACTERS", "COMPRESSION"),
    "PARQUET": ("COMPRESSION",),
    "ORC": ("COMPRESSION",),
    "AVRO": ("COMPRESSION",),
}
_EXPORT = {
    "CSV": ("FIELD_DELIMITER", "HEADER", "QUOTE", "ESCAPE", "COMPRESSION"),
    "JSON": ("COMPRESSION", "DATE_FORMAT", "TIMESTAMP_FORMAT"),
    "PARQUET": ("COMPRESSION",),
    "ORC": ("COMPRESSION",),
    "AVRO": ("COMPRESSION",),
}
# Spark's names of the options that it has, by ours.
_SPARKS = {
    "FIELD_DELIMITER": "sep",
    "QUOTE": "quote",
    "ESCAPE": "escape",
    "HEADER": "header",
    "MULTI_LINE": "multiLine",
    "ENCODING": "encoding",
    "COMPRESSION": "compression",
    "DATE_FORMAT": "dateFormat",
    "TIMESTAMP_FORMAT": "timestampFormat",
}
_KEPT_SPACES = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
# Spark writes milliseconds by itself, and offsets without their seconds, which old times have.
_WHOLE_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_BOOLEANS = (
    *("HEADER", "PARSE_HEADER", "EMPTY_FIELD_AS_NULL", "MULTI_LINE"),
    "REPLACE_INVALID_CHARACTERS",
)
# What other databases and Spark call an option.
_SYNONYMS = {
    "SEP": "FIELD_DELIMITER",
    "DELIMITER": "FIELD_DELIMITER",
    "SEPARATOR": "FIELD_DELIMITER",
    "FIELD_OPTIONALLY_ENCLOSED_BY": "QUOTE",
    "NULLVALUE": "NULL_IF",
    "NULL": "NULL_IF",
    "MULTILINE": "MULTI_LINE",
    "STRIP_OUTER_ARRAY": "MULTI_LINE",
    "CHARSET": "ENCODING",
    "CODEC": "COMPRESSION",
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read. `type` is one of TYPES, `spark` has the options of Spark's reader.

    Texts in `nulls` are NULL. With `has_header` the first line of a file has the names of its
    columns, and is left out; `by_name` says that columns are matched by these names.
    `header_is_set` says that the statement has an option about the first line. With
    `replaces_characters` bytes that are no characters become U+FFFD and are no error.
    """

    type: str
    spark: Mapping[str, str] = field(default_factory=dict)
    nulls: tuple[str, ...] = ()
    has_header: bool = False
    by_name: bool = True
    header_is_set: bool = False
    replaces_characters: bool = False

    @property
    def is_text(self) -> bool:
        """Whether the files have texts, which are cast."""
        return self.type in TEXT_TYPES


def read_options(form: FileFormat, statement: str) -> ReadOptions:
    """Return how files are read. Raises InvalidValueError for an unknown type, option or value."""
    options = _checked(form, _IMPORT, "import", statement)
    nulls = options.get("NULL_IF", ())
    texts = (nulls,) if isinstance(nulls, str) else nulls
    if _is_true(options.get("EMPTY_FIELD_AS_NULL")):
        texts = (*texts, "")
    skipped = _skipped(form, options, statement)
    parses = _is_true(options.get("PARSE_HEADER"))
    if parses and "SKIP_HEADER" in options:
        raise _wrong(
            form,
            statement,
            "PARSE_HEADER and SKIP_HEADER are both set.",
            "PARSE_HEADER = TRUE matches columns by the names of the first line, SKIP_HEADER = 1 "
            "leaves that line out. Keep one of them.",
        )
    return ReadOptions(
        form.type,
        _sparks(options),
        tuple(dict.fromkeys(texts)),
        has_header=parses or skipped,
        by_name=form.type != "CSV" or parses,
        header_is_set="SKIP_HEADER" in options or "PARSE_HEADER" in options,
        replaces_characters=_is_true(options.get("REPLACE_INVALID_CHARACTERS")),
    )


def write_options(form: FileFormat, statement: str) -> dict[str, str]:
    """Return the options of Spark's writer. Raises InvalidValueError as `read_options`."""
    sparks = _sparks(_checked(form, _EXPORT, "export", statement))
    if form.type in TEXT_TYPES:
        sparks = _WHOLE_TIMES | sparks
    # Spark's writer would cut spaces off texts.
    return {**sparks, **(_KEPT_SPACES if form.type == "CSV" else {})}


def _skipped(form: FileFormat, options: Mapping[str, object], statement: str) -> bool:
    lines = str(options.get("SKIP_HEADER", "0")).upper()
    if lines not in ("0", "1", "TRUE", "FALSE"):
        raise _wrong(
            form,
            statement,
            f"SKIP_HEADER supports only 0 or 1, got: {lines}.",
            "Spark's reader leaves out one line at most. Remove further lines from the files.",
        )
    return lines in ("1", "TRUE")


def _checked(
    form: FileFormat, known_by_type: Mapping[str, tuple[str, ...]], doing: str, statement: str
) -> dict[str, str | tuple[str, ...]]:
    if form.type not in TYPES:
        raise _wrong(
            form,
            statement,
            f"Unsupported file format type: {form.type}. Supported types: {', '.join(TYPES)}.",
            nearest(form.type, TYPES, what="types") or "Write one of them as TYPE.",
        )
    known = known_by_type[form.type]
    options = dict(form.options)
    for key, value in options.items():
        if key not in known:
            raise _wrong(
                form,
                statement,
                f"Unsupported FILE_FORMAT options for {doing}: {key}.",
                _about_option(key, form.type, known, doing),
            )
        if key != "NULL_IF" and not isinstance(value, str):
            raise _wrong(
                form, statement, f"{key} has one value, not a list.", f"Write {key} = '…'."
            )
        if key in _BOOLEANS and str(value).upper() not in ("TRUE", "FALSE"):
            raise _wrong(
                form, statement, f"{key} can't be '{value}'.", f"Write {key} = TRUE, or FALSE."
            )
        if key in ("QUOTE", "ESCAPE") and len(str(value)) > 1:
            raise _wrong(
                form, statement, f"{key} is one character, not '{value}'.", f"Write {key} = '\"'."
            )
        if key == "FIELD_DELIMITER" and not value:
            raise _wrong(
                form, statement, "FIELD_DELIMITER is empty.", "Write FIELD_DELIMITER = ';'."
            )
    return options


def _about_option(key: str, kind: str, known: tuple[str, ...], doing: str) -> str:
    if key == "MODE":
        return (
            "Rows that don't fit are what ON_ERROR is about: ON_ERROR = CONTINUE leaves them out."
        )
    if key == "HEADER" and doing == "import":
        return (
            "SKIP_HEADER = 1 leaves out the first line, PARSE_HEADER = TRUE matches by its names."
        )
    meant = _SYNONYMS.get(key, "")
    hint = f"Write {meant}." if meant in known else nearest(key, known, what="options")
    return f"{hint} {kind} has {', '.join(known)}."


def _sparks(options: Mapping[str, str | tuple[str, ...]]) -> dict[str, str]:
    sparks = {}
    for key, value in options.items():
        if key in _SPARKS:
            text = str(value)
            sparks[_SPARKS[key]] = text.lower() if key in _BOOLEANS else text
    return sparks


def _is_true(value: object) -> bool:
    return str(value).upper() == "TRUE"


def _wrong(form: FileFormat, statement: str, message: str, hint: str) -> InvalidValueError:
    return InvalidValueError(
        message, hint=hint.strip(), statement=statement, position=form.position
    )
