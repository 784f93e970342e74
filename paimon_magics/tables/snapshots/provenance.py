"""The origin of a snapshot, which sessions write into its properties.

The properties are part of the snapshot: they last as long as it does, and every engine keeps them.
Snapshots of other engines have none.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paimon_magics.errors import InvalidValueError

PREFIX = "paimon-magics."
USER = PREFIX + "user"
ROLLED_BACK_FROM = PREFIX + "rolled-back-from"
"""The property of a snapshot without rows that a roll-back leaves: the latest id before it."""
REPLACES_SCHEMA = PREFIX + "replaces-schema"
"""The property of the snapshot that removes the rows of a table before its definition is replaced:
the number of the schema that goes."""
OWN_PROPERTIES = frozenset(
    PREFIX + key
    for key in (
        *("epoch", "republished", "replaces-schema"),
        *("log", "log.first", "log.last", "log.dead", "log.label"),
    )
)
"""The properties by which coordinators find out what they have done. Clients can't set them."""
LOAD = "load"
"""The property, without the prefix, of a snapshot of COPY INTO: the id of the load, which rejected
rows have too."""
_USERS_MAX = 50


def author_of(snapshot: Any) -> str:
    """The author of a snapshot, for a message: the user and notebook, else the commit user."""
    properties = noted(snapshot.properties)
    user = properties.get("user")
    if user is None:
        return str(snapshot.commit_user)
    notebook = properties.get("notebook")
    return f"{user} in {notebook}" if notebook else user


def vouched(properties: Mapping[str, str], user: str | None) -> dict[str, str]:
    """The properties of a client's commit, with the authorised name of its `user` in place of a
    claimed name; None is a user without one. Raises InvalidValueError for properties that only
    coordinators set."""
    own = sorted(OWN_PROPERTIES.intersection(properties))
    if own:
        raise InvalidValueError(
            f"The snapshot's property `{own[0]}` is set by coordinators only.",
            hint="Nothing was committed. Leave it out.",
        )
    return {**properties} if user is None else {**properties, USER: user}


def noted(properties: Mapping[str, Any] | None) -> dict[str, str]:
    """The properties of a snapshot that describe its origin, without the prefix."""
    return {
        key.removeprefix(PREFIX): str(value)
        for key, value in (properties or {}).items()
        if key.startswith(PREFIX)
    }


def noted_files(properties: Iterable[tuple[str, str]]) -> int | None:
    """The number of files in a commit's properties; None if they do not contain it."""
    text = dict(properties).get(PREFIX + "files")
    return int(text) if text is not None and text.isdigit() else None


def noted_users(names: Sequence[str]) -> dict[str, str]:
    """The properties, without the prefix, that name all users whose rows a commit contains: as
    text, and for several users also as JSON with the first 50 names."""
    first = names[:_USERS_MAX]
    more = f" and {len(names) - len(first)} more" if len(first) < len(names) else ""
    properties = {"user": ", ".join(first) + more}
    if len(names) > 1:
        properties["users"] = json.dumps(first, ensure_ascii=False)
    return properties


def described(snapshot: Any) -> str:
    """A snapshot for a message: its id, kind, author and time."""
    when = datetime.datetime.fromtimestamp(snapshot.time_millis / 1000, tz=datetime.UTC)
    return (
        f"snapshot {snapshot.id} ({snapshot.commit_kind} by {author_of(snapshot)} "
        f"at {when:%Y-%m-%d %H:%M:%S} UTC)"
    )
