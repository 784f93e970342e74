"""The user, notebook and machine of this process, which a client sends with its requests."""

from __future__ import annotations

import getpass
import os
import socket


def user_name() -> str:
    """The user's name on the JupyterHub, else on this machine; "" if there is none."""
    hub_user = os.environ.get("JUPYTERHUB_USER")
    if hub_user:
        return hub_user
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return ""


def notebook_name() -> str:
    """The notebook whose kernel this process is; "" if there is none, or it is unknown."""
    return os.environ.get("JPY_SESSION_NAME", "")


def host_name() -> str:
    """The name of the machine that this process runs on."""
    return socket.gethostname()
