"""Who works in this process, and where: what a client says of itself when it begins something."""

from __future__ import annotations

import getpass
import os
import socket

__all__ = ["host_name", "notebook_name", "user_name"]


def user_name() -> str:
    """The user's name on the JupyterHub, else on this machine; "" where there is none."""
    hub_user = os.environ.get("JUPYTERHUB_USER")
    if hub_user:
        return hub_user
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return ""


def notebook_name() -> str:
    """The notebook that this process is the kernel of, "" where it is none, or none that tells."""
    return os.environ.get("JPY_SESSION_NAME", "")


def host_name() -> str:
    """The machine that this process runs on."""
    return socket.gethostname()
