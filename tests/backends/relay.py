"""Passes bytes on between two connections."""

from __future__ import annotations

import contextlib
import socket

__all__ = ["relay"]


def relay(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes from one connection to the other until either ends; then end both."""
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
