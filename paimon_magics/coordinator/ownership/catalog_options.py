"""The options of a catalog: a coordinator's from a file, the environment and arguments; a session's
from the environment if it is given none.

Secrets belong in the file or the environment: every user of a machine can see command lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from paimon_magics.errors import SetupError
from paimon_magics.redaction import is_secret_name

ENVIRONMENT = "PAIMON_CATALOG_OPTIONS"
"""The environment variable that may hold options, as a JSON object."""


def catalog_options(
    *,
    warehouse: str | None,
    file: str | None,
    environment: Mapping[str, str],
    assignments: Sequence[str],
) -> dict[str, str]:
    """Return Paimon's catalog options. A later source wins over an earlier one: the JSON object in
    `file`, the one in the environment, `assignments` (`key=value`), `warehouse`.

    Raises SetupError for an unreadable source, for a secret among `assignments`, and when no
    warehouse is specified.
    """
    options: dict[str, str] = {}
    if file is not None:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(
                f"The catalog options in {file} can't be read: {error}",
                hint=(
                    "Name a JSON file with an object of Paimon's catalog options. Its values "
                    "must be strings."
                ),
            ) from error
        options |= _parsed(text, file)
    options |= environment_options(environment)
    for assignment in assignments:
        key, sign, value = assignment.partition("=")
        if not sign or not key.strip():
            raise SetupError(
                f"--catalog-option has '{key}' without a value.",
                hint="Write --catalog-option KEY=VALUE.",
            )
        if is_secret_name(key):
            raise SetupError(
                f"--catalog-option contains '{key.strip()}', which every user of this machine "
                "could read in the process list.",
                hint=f"Put it into the file that --catalog names, or the variable {ENVIRONMENT}.",
            )
        options[key.strip()] = value
    if warehouse is not None:
        options["warehouse"] = warehouse
    if not options.get("warehouse"):
        raise SetupError(
            "No warehouse is specified.",
            hint="Specify its folder or URI with --warehouse, or in the catalog options.",
        )
    return options


def environment_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options in the variable PAIMON_CATALOG_OPTIONS, a JSON object; none if it is not
    set. Raises SetupError for another text.
    """
    return _parsed(environment.get(ENVIRONMENT) or "{}", f"the variable {ENVIRONMENT}")


def _parsed(text: str, where: str) -> dict[str, str]:
    try:
        document = json.loads(text)
    except ValueError as error:
        # Not the text itself: it may hold secrets.
        raise SetupError(
            f"The catalog options in {where} are not JSON: {error}",
            hint='Write an object, as {"s3.endpoint": "https://…"}.',
        ) from None
    if not isinstance(document, dict):
        raise SetupError(
            f"The catalog options in {where} are not a JSON object.",
            hint='Write an object, as {"s3.endpoint": "https://…"}.',
        )
    for key, value in document.items():
        if not isinstance(value, str | int | float | bool):
            raise SetupError(
                f"The catalog option '{key}' in {where} is not a string.",
                hint="Write the option's value as a string.",
            )
    return {key: _text(value) for key, value in document.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
