"""A plugin for pytest: pypaimon's tests talk to coordinators in place of their mock server.

It stands in for the module with the mock server. A server of theirs becomes a coordinator, which
the host starts (`host.py`), with the token that the test chose; clients get the options that the
host says, with the warehouse that it chose. What tests look for inside the mock is refused by name.
"""

from __future__ import annotations

import os
import sys
import types
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from pypaimon.api.auth import BearTokenAuthProvider
from pypaimon.api.rest_api import RESTApi

_HOST = os.environ["CONFORMANCE_HOST"]
_options: dict[str, dict[str, str]] = {}  # of clients of running coordinators, by their port


class RESTCatalogServer:
    """A coordinator with the constructor of the mock server."""

    def __init__(
        self, data_path: str, auth_provider: Any, config: Any, warehouse: str, **others: Any
    ) -> None:
        if others or not isinstance(auth_provider, BearTokenAuthProvider):
            raise NotImplementedError("mock's inside: a server of DLF tokens")
        self._token = auth_provider.token
        self._folder = os.path.join(data_path, warehouse)
        self._url = ""
        self.port = 0

    def start(self) -> None:
        Path(self._folder).mkdir(parents=True, exist_ok=True)
        answer = _ask("POST", warehouse=self._folder, token=self._token)
        self._url, token, *given = answer.split()
        assert token == self._token
        self.port = int(self._url.rpartition(":")[2])
        _options[str(self.port)] = dict(option.split("=", 1) for option in given)

    def get_url(self) -> str:
        return self._url

    def shutdown(self) -> None:
        if self._url:
            _options.pop(str(self.port))
            _ask("DELETE", url=self._url)

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"mock's inside: {name}")


def _ask(method: str, **parameters: str) -> str:
    url = f"{_HOST}/?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(urllib.request.Request(url, method=method)) as answer:
        text: str = answer.read().decode()
    return text


def _map_options() -> None:
    """Have clients name the coordinator's warehouse where a test names it `warehouse`."""
    connect = RESTApi.__init__

    def mapped(self: Any, options: Any, config_required: bool = True) -> None:
        given = options if isinstance(options, dict) else options.to_map()
        others = _options.get(str(given.get("uri")).rpartition(":")[2])
        if others is not None:
            given = {**given, **others}
            options = given if isinstance(options, dict) else type(options)(given)
        connect(self, options, config_required)

    RESTApi.__init__ = mapped


_module = types.ModuleType("pypaimon.tests.rest.rest_server")
_module.RESTCatalogServer = RESTCatalogServer  # type: ignore[attr-defined]
sys.modules[_module.__name__] = _module
_map_options()
