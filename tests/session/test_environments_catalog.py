"""The catalog's options in the environment, for sessions that are given none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paimon_magics.errors import SetupError
from paimon_magics.session.connect_target import found_target
from paimon_magics.session.place_words import PlaceWords
from paimon_magics.settings import Settings
from tests.backends.s3 import new_bucket
from tests.coordinator.process import create_table


def test_session_takes_store_options_from_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with new_bucket() as bucket:
        create_table(bucket.options, "CREATE TABLE t (k INT)")
        monkeypatch.setenv("PAIMON_CATALOG_OPTIONS", json.dumps(bucket.options))
        monkeypatch.setenv("PAIMON_WAREHOUSE", str(tmp_path / "elsewhere"))
        actual = found_target(PlaceWords(), Settings()).catalog
        assert actual.warehouse == bucket.options["warehouse"]
        assert list(actual.list_tables("default")) == ["t"]
        # What the caller names comes before it: a warehouse alone, or all options.
        other = bucket.options["warehouse"] + "-2"
        assert found_target(PlaceWords(other), Settings()).catalog.warehouse == other
        local = str(tmp_path / "local")
        actual = found_target(PlaceWords(catalog={"warehouse": local}), Settings()).catalog
        assert (actual.warehouse, "s3.endpoint" in actual.options) == (local, False)
        keys = {key: value for key, value in bucket.options.items() if key != "warehouse"}
        monkeypatch.setenv("PAIMON_CATALOG_OPTIONS", json.dumps(keys))
        monkeypatch.setenv("PAIMON_WAREHOUSE", bucket.options["warehouse"])
        actual = found_target(PlaceWords(), Settings()).catalog
        assert list(actual.list_tables("default")) == ["t"]


@pytest.mark.parametrize("text", ["{", "[]", '{"a": []}'])
def test_invalid_environment_options_are_reported_without_their_text(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIMON_CATALOG_OPTIONS", text)
    with pytest.raises(SetupError, match="in the variable PAIMON_CATALOG_OPTIONS"):
        found_target(PlaceWords(), Settings())
