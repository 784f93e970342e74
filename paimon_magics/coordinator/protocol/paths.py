"""Paths that both the client and the coordinator use."""

from __future__ import annotations

__all__ = ["OPTIONS_PATH"]

OPTIONS_PATH = "/v1/coordinator/options"
