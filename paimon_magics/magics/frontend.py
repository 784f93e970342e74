"""Who looks at what a cell shows: a person who can answer, or a program that runs notebooks.

The rule: somebody is there when the frontend says that it takes input. A kernel hears it with every
cell: `allow_stdin` of the request is true from JupyterLab, Notebook, VS Code and consoles, and
false from nbconvert, nbval, papermill and what else runs notebooks by nbclient. IPython in a
terminal has somebody when its input is a terminal; `ipython -c`, scripts and pipes don't.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["is_attended", "is_kernel"]


def is_kernel(shell: Any) -> bool:
    """Whether the shell is a Jupyter kernel's."""
    return getattr(shell, "kernel", None) is not None


def is_attended(shell: Any) -> bool:
    """Whether somebody is there who sees what a cell shows while it runs, and can answer."""
    if is_kernel(shell):
        request = shell.get_parent() or {}
        return bool(request.get("content", {}).get("allow_stdin", False))
    # The class of a shell that reads what somebody types.
    if not hasattr(shell, "prompt_for_code"):
        return False
    return sys.stdin.isatty()
