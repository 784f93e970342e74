"""Manifests of newer releases: an unknown version is refused, unknown fields are passed over."""

from __future__ import annotations

import copy
import io
from typing import Any

import fastavro
import pytest
from pypaimon.manifest.manifest_list_manager import MANIFEST_FILE_META_SCHEMA

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.tables.manifests.columns import ManifestColumns

STATISTICS = {"_MIN_VALUES": bytes(12), "_MAX_VALUES": bytes(12), "_NULL_COUNTS": []}
ENTRY: dict[str, Any] = {
    "_VERSION": 2,
    "_FILE_NAME": "manifest-1",
    "_FILE_SIZE": 10,
    "_NUM_ADDED_FILES": 1,
    "_NUM_DELETED_FILES": 0,
    "_PARTITION_STATS": STATISTICS,
    "_SCHEMA_ID": 0,
}


def read(entry: dict[str, Any], *more_fields: dict[str, Any]) -> list[dict[str, Any]]:
    schema = copy.deepcopy(MANIFEST_FILE_META_SCHEMA)
    schema["fields"] += more_fields
    content = io.BytesIO()
    fastavro.writer(content, schema, [entry], codec="zstandard")
    found = ManifestColumns(lambda name: content.getvalue(), 0).files("manifest-list-1")
    return list(found.to_pylist())


def test_unknown_field_is_ignored() -> None:
    field = {"name": "_OF_TOMORROW", "type": ["null", "string"], "default": None}
    assert read(ENTRY | {"_OF_TOMORROW": "x"}, field) == read(ENTRY)


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(UnsupportedStatementError, match="has version 3 of its format"):
        read(ENTRY | {"_VERSION": 3})
