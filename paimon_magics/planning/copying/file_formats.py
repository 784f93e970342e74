"""The options of FILE_FORMAT, and those of Spark's readers and writers.

The names, values and defaults of FILE_FORMAT are those of Paimon's connector
(`CopyOptions.scala`), with ORC, Avro and a few options more. Spark passes over an option that it
does not know.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from paimon_magics.errors import InvalidValueError, UnknownNameError, likely_meant, nearest
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


_OF_TEXTS = (
    *("columnNameOfCorruptRecord", "dateFormat", "enableDateTimeParsingFallback", "encoding"),
    *("lineSep", "locale", "mode", "multiLine", "samplingRatio", "singleVariantColumn"),
    *("timeFormat", "timeZone", "timestampFormat", "timestampNTZFormat", "compression"),
    "maxMalformedLogPerPartition",
)
# What Spark's readers take of each format, and of all: `CSVOptions` and its like.
_READER: Mapping[str, tuple[str, ...]] = {
    "csv": (
        *_OF_TEXTS,
        *("charToEscapeQuoteEscaping", "columnPruning", "comment", "emptyValue", "enforceSchema"),
        *("escape", "header", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"),
        *("inferSchema", "inputBufferSize", "maxCharsPerColumn", "maxColumns", "nanValue"),
        *("negativeInf", "nullValue", "positiveInf", "preferDate", "quote", "sep"),
        "unescapedQuoteHandling",
    ),
    "json": (
        *_OF_TEXTS,
        *("allowBackslashEscapingAnyCharacter", "allowComments", "allowNonNumericNumbers"),
        *("allowNumericLeadingZeros", "allowSingleQuotes", "allowUnquotedControlChars"),
        *("allowUnquotedFieldNames", "dropFieldIfAllNull", "explodeEmbeddedArray"),
        *("inferTimestamp", "prefersDecimal", "primitivesAsString", "useUnsafeRow"),
    ),
    "text": ("compression", "encoding", "lineSep", "wholetext"),
    "parquet": ("datetimeRebaseMode", "int96RebaseMode", "mergeSchema"),
    "orc": ("mergeSchema",),
    "avro": (
        *("avroSchema", "avroSchemaUrl", "datetimeRebaseMode", "ignoreExtension", "mode"),
        *("enableStableIdentifiersForUnionType", "stableIdentifierPrefixForUnionType"),
        *("positionalFieldMatching", "recursiveFieldMaxDepth", "mergeSchema"),
    ),
    "binaryfile": (),
}
_OF_FILES = (
    *("basePath", "ignoreCorruptFiles", "ignoreInvalidPartitionPaths", "ignoreMissingFiles"),
    *("ignoredPathSegmentRegex", "modifiedAfter", "modifiedBefore", "pathGlobFilter"),
    *("recursiveFileLookup", "timeZone"),
)
# What its writers take besides, which is passed over by a reader.
_WRITER: Mapping[str, tuple[str, ...]] = {
    "csv": ("escapeQuotes", "extension", "quoteAll"),
    "json": ("ignoreNullFields", "pretty", "sortKeys", "writeNonAsciiCharacterAsCodePoint"),
    "parquet": ("compression",),
    "orc": ("compression",),
    "avro": ("compression", "recordName", "recordNamespace"),
}
_SPARKS_SYNONYMS = {"delimiter": "sep", "charset": "encoding", "codec": "compression"}


def reader_options(kind: str, options: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The options of Spark's reader of a format (Spark's word, in lower case), by the names that
    Spark's documentation has. Raises UnknownNameError for one that the reader does not know, and
    InvalidValueError for one that is there twice."""
    known = {name.lower(): name for name in (*_OF_FILES, *_READER[kind])}
    result: dict[str, str] = {}
    for key, value in options:
        name = _sparks_name(kind, key, known)
        if name in result:
            raise InvalidValueError(
                f"The option `{name}` of {kind} files is there twice.",
                hint=f"Keep one of them: `{key}` is the same option.",
            )
        result[name] = value
    return result


def whole_files(encoding: str, options: Mapping[str, str]) -> dict[str, str]:
    """The option to read CSV files as a whole, if they have an encoding whose line ends Spark does
    not find (it looks for their last byte), and the options have no text of line ends."""
    wide = encoding.lower().replace("_", "-").startswith(("utf-16", "utf16", "utf-32", "utf32"))
    return {"multiLine": "true"} if wide and "lineSep" not in options else {}


def check_file_options(kind: str, names: Iterable[str]) -> None:
    """Raise UnknownNameError for an option that neither the reader nor the writer of a format
    knows, for a format that is known here."""
    if kind in _READER:
        every = ("path", *_OF_FILES, *_READER[kind], *_WRITER.get(kind, ()))
        known = {name.lower(): name for name in every}
        for name in names:
            _sparks_name(kind, name, known)


def _sparks_name(kind: str, key: str, known: Mapping[str, str]) -> str:
    lower = key.lower()
    name = known.get(_SPARKS_SYNONYMS.get(lower, lower))
    if name is not None or "." in key:  # such as fs.s3a.access.key, of Hadoop's
        return name or key
    raise UnknownNameError(
        f"Spark has no option `{key}` to read {kind} files.", hint=_meant(kind, lower, known)
    )


def _meant(kind: str, lower: str, known: Mapping[str, str]) -> str:
    if lower in map(str.lower, _WRITER.get(kind, ())):
        return "It is an option of writing them."
    words = {"separator": "sep", **_SPARKS_SYNONYMS}
    names = {word: name for word, name in words.items() if name in known.values()} | dict(known)
    close = difflib.get_close_matches(lower, names, n=1)
    if close:
        return f"Did you mean `{names[close[0]]}`?"
    return nearest(lower, known.values(), what="options")


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
    sparks = _sparks(options)
    if form.type == "CSV":
        sparks = whole_files(sparks.get("encoding", ""), sparks) | sparks
    return ReadOptions(
        form.type,
        sparks,
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
        pattern = sparks.get("timestampFormat")
        if pattern is not None:
            sparks["timestampNTZFormat"] = pattern
        sparks = _WHOLE_TIMES | sparks
    # Spark's writer would cut spaces off texts.
    return {**sparks, **(_KEPT_SPACES if form.type == "CSV" else {})}


def has_zone(pattern: str) -> bool:
    """Whether a pattern of times has the zone, which a TIMESTAMP_NTZ lacks."""
    return any(letter in "VzOXxZ" for letter in re.sub("'[^']*'", "", pattern))


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
    hint = f"Write {meant}." if meant in known else likely_meant(key, known)
    return f"{hint} {kind} has {', '.join(known)}.".strip()


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
