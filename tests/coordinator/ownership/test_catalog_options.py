"""Where the options of a coordinator's catalog come from, and which of them win."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paimon_magics.coordinator.ownership.catalog_options import ENVIRONMENT, catalog_options
from paimon_magics.errors import SetupError


def options(
    *assignments: str,
    warehouse: str | None = "s3://lake/w",
    file: str | None = None,
    environment: str | None = None,
) -> dict[str, str]:
    variables = {} if environment is None else {ENVIRONMENT: environment}
    return catalog_options(
        warehouse=warehouse, file=file, environment=variables, assignments=assignments
    )


def test_options_prefer_command_line_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "catalog.json"
    stored = {"warehouse": "of the file", "a": "file", "b": "file", "c": "file", "d": True, "e": 7}
    file.write_text(json.dumps(stored))
    actual = options(
        "c=command=line",
        file=str(file),
        environment='{"b": "environment", "c": "environment"}',
    )
    assert actual == {
        "warehouse": "s3://lake/w",
        "a": "file",
        "b": "environment",
        "c": "command=line",
        "d": "true",
        "e": "7",
    }
    assert options(warehouse=None, file=str(file))["warehouse"] == "of the file"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"assignments": ["s3.endpoint"]}, "--catalog-option has 's3.endpoint' without a value"),
        ({"assignments": ["=x"]}, "--catalog-option has '' without a value"),
        ({"assignments": ["password=secret"]}, "could read in the process list"),
        ({"environment": "secret"}, f"in the variable {ENVIRONMENT} are not JSON"),
        ({"environment": '["secret"]'}, "are not a JSON object"),
        ({"environment": '{"a": {"secret": 1}}'}, "'a' in the variable .* is not a string"),
        ({"file": "nowhere.json"}, "in nowhere.json can't be read"),
        ({"warehouse": None}, "No warehouse is specified"),
    ],
)
def test_unreadable_options_are_reported_without_their_text(
    arguments: dict[str, object], message: str
) -> None:
    assignments = arguments.pop("assignments", [])
    with pytest.raises(SetupError, match=message) as raised:
        options(*assignments, **arguments)  # type: ignore[arg-type, misc]
    assert "secret" not in raised.value.text()
