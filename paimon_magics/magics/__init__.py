"""IPython's side: the `%%paimon` cell, the `%paimon` verbs, their options and configuration.

Thin on purpose: it reads options and gives an Outcome; `paimon_magics.session` does the rest, for
Python code too. Loading the extension imports nothing heavy: Spark, Arrow and pypaimon are imported
with the first connection.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register `%paimon` and `%%paimon`; called by `%load_ext paimon_magics`."""
    from paimon_magics.magics.cell import with_empty_body
    from paimon_magics.magics.configuration import PaimonMagics
    from paimon_magics.magics.views import views_package

    unload_ipython_extension(shell)
    logging.root.addFilter(_is_no_interrupt)
    shell.register_magics(PaimonMagics)
    shell.input_transformers_cleanup.insert(0, with_empty_body)
    for event, callback in _callbacks(shell, PaimonMagics):
        shell.events.register(event, callback)
    for our in _ours(shell, PaimonMagics):
        shell.Completer.custom_matchers.append(our.matcher)
    views = views_package()
    if views is not None:
        views.register(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Unregister everything that loading registered; called by `%unload_ext paimon_magics`.

    An open connection stays open: it belongs to the process, not to the extension.
    """
    from paimon_magics.magics.cell import with_empty_body
    from paimon_magics.magics.configuration import PaimonMagics
    from paimon_magics.magics.views import views_package

    logging.root.removeFilter(_is_no_interrupt)
    views = views_package()
    if views is not None:
        views.unregister(shell)
    with suppress(ValueError):
        shell.input_transformers_cleanup.remove(with_empty_body)
    for event, callback in _callbacks(shell, PaimonMagics):
        with suppress(ValueError):
            shell.events.unregister(event, callback)
    for our in _ours(shell, PaimonMagics):
        with suppress(ValueError):
            shell.Completer.custom_matchers.remove(our.matcher)
    manager = shell.magics_manager
    for magics in manager.magics.values():
        for name in [n for n, magic in magics.items() if _is_ours(magic, PaimonMagics)]:
            del magics[name]
    manager.registry.pop(PaimonMagics.__name__, None)
    shell.configurables[:] = [c for c in shell.configurables if not isinstance(c, PaimonMagics)]


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Drops the trace that py4j logs on the root logger when an interrupt ends a call to the JVM
    (py4j.java_gateway.GatewayClient.send_command). The cell shows the interrupt itself."""
    return record.msg != "KeyboardInterrupt while sending command."


def _ours(shell: InteractiveShell, cls: type) -> list[Any]:
    return [configurable for configurable in shell.configurables if isinstance(configurable, cls)]


def _callbacks(shell: InteractiveShell, cls: type) -> list[tuple[str, Any]]:
    """The functions that IPython calls around each cell, with their events."""
    callbacks: list[tuple[str, Any]] = []
    for our in _ours(shell, cls):
        callbacks.append(("pre_run_cell", our.progress_of_cells.begin))
        callbacks.append(("post_run_cell", our.progress_of_cells.end))
    return callbacks


def _is_ours(magic: object, cls: type) -> bool:
    return isinstance(getattr(magic, "__self__", None), cls)
