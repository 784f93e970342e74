"""Whether a person looks at a cell and can answer, or a program runs the notebook.

The rule: a shell is attended if its frontend takes input. A kernel learns this with each cell:
`allow_stdin` of the request is true from JupyterLab, Notebook, VS Code and consoles, and false from
nbconvert, nbval, papermill and other programs that use nbclient. IPython in a terminal is attended
if its input is a terminal; `ipython -c`, scripts and pipes are not.
"""

from __future__ import annotations

import sys
from typing import Any


def is_kernel(shell: Any) -> bool:
    """Whether the shell is a Jupyter kernel's."""
    return getattr(shell, "kernel", None) is not None


def is_attended(shell: Any) -> bool:
    """Whether a person sees the cell's output while it runs, and can answer."""
    if is_kernel(shell):
        request = shell.get_parent() or {}
        return bool(request.get("content", {}).get("allow_stdin", False))
    # Only shells that prompt for code read what a person types.
    if not hasattr(shell, "prompt_for_code"):
        return False
    return sys.stdin.isatty()


def somebody_is_there() -> bool:
    """The same for the shell in which this runs; False outside of IPython."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and is_attended(shell)
