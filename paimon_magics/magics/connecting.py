"""`%paimon connect`: its arguments, the session that they ask for, and the line on its place."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from paimon_magics.errors import (
    InvalidValueError,
    StatementSyntaxError,
    UnknownNameError,
    nearest,
)
from paimon_magics.magics.namespace import Variables, filled_in
from paimon_magics.magics.options import Option, split_words
from paimon_magics.magics.views import load_views_aside
from paimon_magics.redaction import conceal_options, is_secret_name, redacted
from paimon_magics.settings import Settings

if TYPE_CHECKING:
    from paimon_magics.magics.configuration import PaimonMagics
    from paimon_magics.session.session import Session

# Configured values that take effect at once; the others are read when a connection is made.
AT_ONCE = ("confirm", "display_rows", "limit", "progress", "result_type", "full_tracebacks")
CATALOG = "catalog."

CONNECT_OPTIONS = (Option(("--close",), "", "close the open session first"),)


def connect_verb(magics: PaimonMagics, argument: str) -> object:
    """Open a session, or return the open one. After a failure no cell runs until a connect
    succeeds: see `session.opening.check_usable`."""
    from paimon_magics.session.opening import connect_failed, failed_connect

    before = failed_connect()
    try:
        return _connect(magics, argument)
    except BaseException as error:
        # `connect` records its own failures; a failure before the call is recorded here.
        if argument and failed_connect() is before:
            connect_failed(error, _place_in(argument))
        raise


def print_place(session: Session) -> None:
    """Print the place, so that a mistyped warehouse or store option is seen."""
    store = session.store
    if store.is_remote:
        print(f"Store: {redacted(str(store))}")
    elif store.read_only:
        print(f"The warehouse is read only: {store.read_only}.")
    for note in store.notes:
        print(redacted(note))
    if store.is_new:
        print(f"New warehouse at {session.warehouse}: no tables yet.")


def _connect(magics: PaimonMagics, argument: str) -> Session | None:
    from paimon_magics.session import opening
    from paimon_magics.session.place_words import PlaceWords

    variables = Variables(magics.namespace_shell)
    words = split_words(argument)
    # Filled in after splitting: a value may contain blanks.
    pairs = [filled_in(word, variables) for word in words if word != "--close"]
    values = _read_pairs(pairs)
    spark = _spark(values.pop("spark", None), variables)
    catalog_keys = [key for key in values if key.startswith(CATALOG)]
    catalog = {key.removeprefix(CATALOG): values.pop(key) for key in catalog_keys}
    conceal_options(catalog)
    warehouse = values.pop("warehouse", "")
    # The token comes from the environment only: a notebook would store it with the cell.
    coordinator = values.pop("coordinator", "") or None
    settings = magics.settings()
    settings.update({key: read_setting(magics, key, value) for key, value in values.items()})
    if "--close" in words:
        closed = _close()
        if not pairs:
            print(closed)
            return None
    configured = magics.warehouse, dict(magics.catalog)
    before = magics.configured_when_connected
    is_open = opening.active_session() is not None
    names_a_place = bool(catalog or warehouse or "://" in (coordinator or ""))
    # Without a place it is the open session's, unless another was configured since it was opened.
    if not names_a_place and (not is_open or (before is not None and before != configured)):
        warehouse, catalog = magics.warehouse, dict(magics.catalog)
    if not is_open and opening.failed_connect() is None:
        # After a closed connection the default warehouse is hardly what the user means.
        opening.check_usable(PlaceWords(warehouse or None, catalog or None, coordinator))
    warehouse = os.path.expanduser(warehouse)
    if catalog and warehouse:
        catalog["warehouse"] = warehouse
    if is_open:
        # The open session keeps its settings; only the settings of this line are compared.
        settings = {key: settings[key] for key in values if key not in AT_ONCE}
    else:
        coordinator = coordinator or magics.coordinator or None
        load_views_aside()
    session = opening.connect(
        None if catalog else warehouse or None,
        catalog=catalog or None,
        coordinator=coordinator,
        spark=spark,
        **settings,
    )
    magics.configured_when_connected = configured
    if "display_rows" in values:
        magics.display_rows = int(values["display_rows"])
    if not is_open or names_a_place:
        print_place(session)
    return session


def _close() -> str:
    """Close the open session; return the message."""
    from paimon_magics.session.opening import active_session

    session = active_session()
    if session is None:
        return "No connection was open."
    session.close()
    return f"{session.warehouse} is closed."


def _place_in(argument: str) -> str:
    """The warehouse that the arguments of a connect name, as far as they can be parsed."""
    for word in argument.split():
        key, _, value = word.partition("=")
        if key == "warehouse":
            return value.strip("'\"")
    return ""


def _read_pairs(pairs: list[str]) -> dict[str, str]:
    names = ("warehouse", "coordinator", "spark", *(field.name for field in fields(Settings)))
    values: dict[str, str] = {}
    secret_before = False
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if pair.startswith("-"):
            plain = key.lstrip("-").replace("-", "_")
            is_named = plain in names or plain.startswith(CATALOG)
            raise UnknownNameError(
                f"`connect` has no option `{key}`.",
                hint=f"Leave the dashes out: %paimon connect {plain}=…"
                if is_named
                else "It has `--close`; write everything else as name=value: warehouse=….",
            )
        if not equals:
            shown = "***" if secret_before else pair
            raise StatementSyntaxError(
                f"`{shown}` is not of the form key=value.",
                hint=f"For a warehouse: %paimon connect warehouse={shown}",
            )
        if key not in names and not (key.startswith(CATALOG) and len(key) > len(CATALOG)):
            raise UnknownNameError(
                f"`connect` has no option `{key}`.",
                hint=_of_a_catalog(key)
                or nearest(key, (*names, "catalog.uri", "catalog.metastore"), what="options"),
            )
        if key in values:
            raise StatementSyntaxError(f"`{key}` is given twice.", hint="Leave one of them out.")
        values[key] = value
        secret_before = is_secret_name(key)
    return values


def _of_a_catalog(key: str) -> str:
    """The hint for a catalog option that lacks its `catalog.` prefix."""
    if key.partition(".")[0] in (
        "s3",
        "s3a",
        "gcs",
        "gs",
        "azure",
        "abfs",
        "fs",
        "hdfs",
        "dlf",
        "token",
        "metastore",
        "uri",
    ):
        return f"Catalog options begin with `catalog.`: catalog.{key}=…"
    return ""


def _spark(name: str | None, variables: Variables) -> Any:
    if name is None:
        return None
    if name not in variables:
        raise UnknownNameError(
            f"`spark={name}` names no variable.",
            hint="Name the variable that holds the SparkSession, as in spark=spark.",
        )
    return variables[name]


def read_setting(magics: PaimonMagics, key: str, text: str) -> object:
    """Parse the value of a setting; raises InvalidValueError."""
    from traitlets import TraitError

    trait = magics.traits(config=True)[key]
    try:
        value = trait.from_string(text)
        return trait._validate(magics, value)
    except (TraitError, ValueError):
        now = getattr(magics, key)
        raise InvalidValueError(
            f"`{key}` can't be `{text}`.", hint=f"It is {now!r} now. {trait.help}"
        ) from None
