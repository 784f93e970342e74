"""`%paimon config`: the settings of a notebook, shown and set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paimon_magics.errors import (
    StatementSyntaxError,
    UnknownNameError,
    nearest,
)
from paimon_magics.magics.connecting import AT_ONCE, CATALOG, read_setting
from paimon_magics.magics.namespace import Variables, filled_in
from paimon_magics.magics.options import split_words
from paimon_magics.redaction import masked

if TYPE_CHECKING:
    from paimon_magics.magics.configuration import PaimonMagics

__all__ = ["config_verb"]


def config_verb(magics: PaimonMagics, argument: str) -> None:
    """Show all settings or one, or set one."""
    if not argument:
        print("\n".join(_shown(magics, name) for name in sorted(_configurable(magics))))
        return
    (pair, *others) = split_words(argument)
    if others:
        raise StatementSyntaxError(
            f"`%paimon config` takes one key=value: `{others[0]}` is left over.",
            hint="Set one at a time, and quote a value with spaces: %paimon config key='a value'.",
        )
    key, equals, text = pair.partition("=")
    if not equals:
        print(_shown(magics, _known(magics, key)))
        return
    text = filled_in(text, Variables(magics.namespace_shell))
    if key.startswith(CATALOG) and len(key) > len(CATALOG):
        magics.catalog = {**magics.catalog, key.removeprefix(CATALOG): text}
        key = "catalog"
    else:
        setattr(magics, _known(magics, key), read_setting(magics, key, text))
    later = "" if key in AT_ONCE else " (from the next connection on)"
    print(f"{key} = {_value(magics, key)}{later}")


def _configurable(magics: PaimonMagics) -> dict[str, Any]:
    return magics.traits(config=True)


def _known(magics: PaimonMagics, key: str) -> str:
    names = _configurable(magics)
    if key not in names:
        raise UnknownNameError(
            f"There is no setting `{key}`.", hint=nearest(key, names, what="settings")
        )
    return key


def _shown(magics: PaimonMagics, name: str) -> str:
    trait = _configurable(magics)[name]
    value, default = _value(magics, name), repr(trait.default())
    changed = "" if value == default else f" (default {default})"
    return f"{name} = {value}{changed}\n    {trait.help}"


def _value(magics: PaimonMagics, name: str) -> str:
    value = getattr(magics, name)
    if isinstance(value, dict):
        value = {key: masked(key, text) for key, text in value.items()}
    return repr(value)
