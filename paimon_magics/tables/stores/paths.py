"""Local paths in all their spellings, told from the locations in other stores."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

__all__ = ["local_path"]


def local_path(location: str) -> str | None:
    """The path of a location on a local disk, or None for any other store.

    Accepts `/a/b`, `file:/a/b`, `file:///a/b` and relative paths.
    """
    if "://" not in location and not location.startswith("file:"):
        return location
    parts = urlsplit(location)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    return unquote(parts.path) if "%" in parts.path and "file://" in location else parts.path
