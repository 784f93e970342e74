"""IPython's side: the `%%paimon` cell, the `%paimon` verbs, their options and configuration.

Thin on purpose: options in, an Outcome out; `paimon_magics.session` does the rest, for Python
alike. Loading the extension loads nothing heavy: Spark, Arrow and pypaimon come with the first
connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What `%load_ext paimon_magics` calls: registers `%paimon` and `%%paimon`."""
    from paimon_magics.magics.configuration import PaimonMagics

    unload_ipython_extension(shell)
    shell.register_magics(PaimonMagics)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """What `%unload_ext paimon_magics` calls: takes away everything that loading registered.

    An open connection stays open: it is the process's, not the extension's.
    """
    from paimon_magics.magics.configuration import PaimonMagics

    manager = shell.magics_manager
    for magics in manager.magics.values():
        for name in [n for n, magic in magics.items() if _is_ours(magic, PaimonMagics)]:
            del magics[name]
    manager.registry.pop(PaimonMagics.__name__, None)
    shell.configurables[:] = [c for c in shell.configurables if not isinstance(c, PaimonMagics)]


def _is_ours(magic: object, cls: type) -> bool:
    return isinstance(getattr(magic, "__self__", None), cls)
