"""Replaces methods of PySpark's classes, and puts the originals back. No other module does so.

A patch is a function of the `Call`: it answers the call, or lets it proceed. Methods are replaced
on the classes, once in a process, because frames create readers, writers and other frames
themselves. Decision 009 has the reasons and risks.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

OWN_PACKAGES = ("paimon_magics", "paimon_widgets")
"""Packages whose calls go to PySpark as they are."""

_MARK = "__paimon_magics_patch__"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a patched method of `target`. `name` is `Class.method`."""

    name: str
    original: Callable[..., Any]
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def method(self) -> str:
        """The name of the method alone."""
        return self.name.rpartition(".")[2]

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments by name; empty if PySpark itself would refuse the call."""
        try:
            signature = inspect.signature(self.original)
            return signature.bind(self.target, *self.args, **self.kwargs).arguments
        except TypeError:
            return {}

    def on(self, target: Any) -> Any:
        """Call PySpark's method of another object."""
        return self.original(target, *self.args, **self.kwargs)

    def proceed(self) -> Any:
        """Call PySpark's method."""
        return self.on(self.target)


Patch = Callable[[Call], Any]
"""Runs in place of a method, and returns what the method shall return."""


class Patches:
    """The methods that are replaced in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._replaced: list[tuple[type, str, object, object]] = []

    def apply(
        self,
        owner: type,
        patches: Mapping[str, Patch],
        *,
        unseen: Collection[str] = OWN_PACKAGES,
    ) -> None:
        """Replace methods, and getters of properties, of a class. A method that this version of
        PySpark lacks, and one that is replaced already, stays as it is. Calls from the packages
        `unseen` go to the original."""
        with self._lock:
            for method, patch in patches.items():
                self._replace(owner, method, patch, unseen)

    def restore(self) -> None:
        """Put all originals back. A method that another library has replaced since then stays: that
        library may call ours, which lets calls proceed."""
        with self._lock:
            for owner, method, own, replacement in self._replaced:
                if vars(owner).get(method) is not replacement:
                    continue
                if own is None:  # it was inherited
                    delattr(owner, method)
                else:
                    setattr(owner, method, own)
            self._replaced.clear()

    def _replace(self, owner: type, method: str, patch: Patch, unseen: Collection[str]) -> None:
        attribute: Any = getattr(owner, method, None)
        original = attribute.fget if isinstance(attribute, property) else attribute
        if original is None or hasattr(original, _MARK):
            return
        name = f"{owner.__name__}.{method}"

        @functools.wraps(original)
        def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
            caller = str(sys._getframe(1).f_globals.get("__name__", ""))
            if caller.partition(".")[0] in unseen:
                return original(self, *args, **kwargs)
            return patch(Call(name, original, self, args, kwargs))

        setattr(patched, _MARK, True)
        replacement = property(patched) if isinstance(attribute, property) else patched
        self._replaced.append((owner, method, vars(owner).get(method), replacement))
        setattr(owner, method, replacement)


CALL_PATCHES = Patches()
"""The patches of calls that name tables; they go with the last session."""

FRAME_PATCHES = Patches()
"""The patches of frames, which may outlive their session; they stay."""
