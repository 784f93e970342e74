from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config, PyFileConfigLoader

from paimon_magics.errors import InvalidValueError, UnknownNameError
from paimon_magics.magics.configuration import PaimonMagics
from paimon_magics.settings import Settings

HUB = Path(__file__).resolve().parents[2] / "notebooks" / "jupyterhub"


def magics_of(shell: InteractiveShell) -> PaimonMagics:
    result = shell.magics_manager.registry["PaimonMagics"]
    assert isinstance(result, PaimonMagics)
    return result


def test_every_session_setting_is_configurable_with_same_default(
    shell: InteractiveShell,
) -> None:
    defaults = Settings()
    expected = {field.name: getattr(defaults, field.name) for field in fields(Settings)}
    assert magics_of(shell).settings() == expected


def test_every_configurable_name_has_help() -> None:
    traits = PaimonMagics.class_traits(config=True)
    assert len(traits) > len(fields(Settings))
    assert [name for name, trait in traits.items() if len(trait.help) < 20] == []


def test_configuration_file_values_are_applied(
    make_shell: Callable[[Config], InteractiveShell],
) -> None:
    config = Config()
    config.PaimonMagics.display_rows = 7
    config.PaimonMagics.catalog = {"metastore": "rest", "uri": "http://localhost:1"}
    shell = make_shell(config)
    shell.run_cell("%load_ext paimon_magics").raise_error()
    assert magics_of(shell).display_rows == 7
    assert magics_of(shell).catalog["metastore"] == "rest"


def test_example_hub_defaults_are_applied(
    make_shell: Callable[[Config], InteractiveShell],
) -> None:
    defaults = PyFileConfigLoader("ipython_config.py", path=str(HUB)).load_config()
    assert defaults.InteractiveShellApp.extensions == ["paimon_magics"]
    shell = make_shell(defaults)
    shell.run_cell("%load_ext paimon_magics").raise_error()
    magics = magics_of(shell)
    configured = {name: getattr(magics, name) for name in defaults.PaimonMagics}
    assert configured == dict(defaults.PaimonMagics)


def test_ipython_config_magic_changes_settings(shell: InteractiveShell) -> None:
    shell.run_cell("%config PaimonMagics.limit = 3").raise_error()
    assert magics_of(shell).limit == 3


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("display_rows=5", "display_rows", 5),
        ("limit=10", "limit", 10),
        ("limit=None", "limit", None),
        ("result_type=pandas", "result_type", "pandas"),
        ("full_tracebacks=True", "full_tracebacks", True),
        ("warehouse='my lake'", "warehouse", "my lake"),
        ("warehouse={place}/x", "warehouse", "/lake/x"),
        ("catalog.uri=http://localhost:1", "catalog", {"uri": "http://localhost:1"}),
    ],
)
def test_config_sets_a_value(shell: InteractiveShell, text: str, name: str, value: object) -> None:
    shell.user_ns["place"] = "/lake"
    shell.run_cell(f"%paimon config {text}").raise_error()
    assert getattr(magics_of(shell), name) == value


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("display_row", UnknownNameError, "Did you mean `display_rows`?"),
        ("display_row=5", UnknownNameError, "Did you mean `display_rows`?"),
        ("display_rows=five", InvalidValueError, "`display_rows` can't be `five`"),
        ("display_rows=-1", InvalidValueError, "`display_rows` can't be `-1`"),
        ("result_type=table", InvalidValueError, "outcome, spark, arrow, pandas, polars"),
        ("full_tracebacks=perhaps", InvalidValueError, "`full_tracebacks` can't be `perhaps`"),
        ("warehouse={plase}", UnknownNameError, "Did you mean `place`?"),
    ],
)
def test_config_explains_wrong_name_or_value(
    shell: InteractiveShell, text: str, error: type[Exception], said: str
) -> None:
    shell.user_ns["place"] = "/lake"
    done = shell.run_cell(f"%paimon config {text}")
    assert isinstance(done.error_in_exec, error)
    assert said in str(done.error_in_exec)


def test_config_lists_values_with_their_defaults(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell("%paimon config display_rows=5").raise_error()
    capsys.readouterr()
    shell.run_cell("%paimon config").raise_error()
    shown = capsys.readouterr().out
    assert "display_rows = 5 (default 20)\n    Rows that a displayed query shows." in shown
    assert all(f"{name} = " in shown for name in PaimonMagics.class_traits(config=True))


def test_config_marks_values_applied_at_next_connection(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell("%paimon config master=local[2]\n%paimon config limit=3").raise_error()
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["master = 'local[2]' (from the next connection on)", "limit = 3"]


def test_config_masks_secret_catalog_options(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell("%paimon config catalog.token=abc123").raise_error()
    shell.run_cell("%paimon config").raise_error()
    shown = capsys.readouterr().out
    assert "catalog = {'token': '***'}" in shown
    assert "abc123" not in shown
