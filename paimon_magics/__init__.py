"""paimon-magics: Apache Paimon in notebooks. It plans statements, runs them on Spark, and commits.

    import paimon_magics
    session = paimon_magics.connect()
    session.run("SELECT * FROM shop.orders")

In a notebook: `%load_ext paimon_magics`, then `%%paimon` cells. Importing the package is cheap:
Spark, Arrow and pypaimon are imported at the first connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paimon_magics import errors
from paimon_magics.version import __version__

if TYPE_CHECKING:
    from paimon_magics.magics import load_ipython_extension, unload_ipython_extension
    from paimon_magics.session.doctor import doctor
    from paimon_magics.session.opening import active_session, connect
    from paimon_magics.session.outcome import Outcome
    from paimon_magics.session.registering import register
    from paimon_magics.session.session import Session

__all__ = [
    "Outcome",
    "Session",
    "__version__",
    "active_session",
    "connect",
    "doctor",
    "errors",
    "load_ipython_extension",
    "register",
    "unload_ipython_extension",
]

_HOMES = {
    "Outcome": "paimon_magics.session.outcome",
    "Session": "paimon_magics.session.session",
    "active_session": "paimon_magics.session.opening",
    "connect": "paimon_magics.session.opening",
    "doctor": "paimon_magics.session.doctor",
    "load_ipython_extension": "paimon_magics.magics",
    "register": "paimon_magics.session.registering",
    "unload_ipython_extension": "paimon_magics.magics",
}


def __getattr__(name: str) -> Any:
    """Load a public name's module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
