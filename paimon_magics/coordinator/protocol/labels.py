"""Labels of small inserts, by which a repeated insert is recognised."""

from __future__ import annotations

__all__ = ["LABEL_CHARACTERS_MAX"]

LABEL_CHARACTERS_MAX = 128
