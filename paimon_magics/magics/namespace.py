"""The notebook's variables: values for `:name`, and `{name}` on the line of a verb."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from paimon_magics.errors import UnknownNameError, nearest

_NOTHING = object()
_IN_BRACES = re.compile(r"\{([^\W\d]\w*)\}")


class Variables(Mapping[str, object]):
    """A view of the user's variables, without IPython's own and names that begin with `_`."""

    def __init__(self, shell: Any) -> None:
        self._namespace: Mapping[str, object] = shell.user_ns
        self._hidden: Mapping[str, object] = shell.user_ns_hidden

    def __getitem__(self, name: str) -> object:
        if not self._is_visible(name):
            raise KeyError(name)
        return self._namespace[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in list(self._namespace) if self._is_visible(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _is_visible(self, name: str) -> bool:
        if name.startswith("_") or name not in self._namespace:
            return False
        # IPython hides its own names; one that the user gave another value is the user's.
        return self._namespace[name] is not self._hidden.get(name, _NOTHING)


def filled_in(text: str, variables: Mapping[str, object]) -> str:
    """Return `text` with the value of each `{name}` in its place; raises UnknownNameError."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in variables:
            raise UnknownNameError(
                f"`{match[0]}` names no variable.",
                hint=nearest(name, variables, what="variables") if variables else "",
            )
        return str(variables[name])

    return _IN_BRACES.sub(value, text)
