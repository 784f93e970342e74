"""Locations in all their spellings: local paths, and URIs of other stores.

`plain_location` returns a location for reading and writing: it only drops redundant parts.
`canonical_location` returns a location for comparison: it is equal for all spellings of one place.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

# Spellings of one scheme, and the ports that a URI may leave out.
_SAME_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
_SCHEMES = ("s3", "s3a", "s3n"), ("abfss", "abfs", "wasbs", "wasb")
_PORTS = {"http": 80, "https": 443, "hdfs": 8020}
_HOSTS = ("hdfs", "viewfs", "abfss")  # whose authority is a host, not a bucket


class FileStatus(NamedTuple):
    """A file below a folder: its path in it, its size in bytes, and when it was written, in epoch
    milliseconds by the store's clock. An empty folder has no size, None."""

    path: str
    size_bytes: int | None
    modified_ms: int


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


def java_path(location: str) -> str:
    """The location as Java's `Path` spells it in tables: `file:/a/b` on a local disk."""
    local = local_path(location)
    return location.rstrip("/") if local is None else f"file:{local.rstrip('/')}"


def plain_location(location: str) -> str:
    """The location without `file:`, doubled slashes, a slash at its end, and `.` or `..` as a part.
    Symbolic links stay: on other machines they may lead elsewhere."""
    local = local_path(location)
    if local is not None:
        return os.path.abspath(local)
    scheme, _, rest = location.partition("://")
    authority, slash, path = rest.partition("/")
    path = posixpath.normpath(f"/{path}").lstrip("/")
    return f"{scheme.lower()}://{authority}" + (f"/{path}" if slash and path else "")


def canonical_location(location: str) -> str:
    """The one form of a location in all its spellings, for comparisons and keys; not for reading
    and writing.

    It asks a local disk for symbolic links, and for the case in which names are stored.
    """
    local = local_path(location)
    if local is not None:
        return _stored_case(os.path.realpath(os.path.expanduser(local)))
    scheme, _, rest = plain_location(location).partition("://")
    scheme = _SAME_SCHEMES.get(scheme, scheme)
    authority, slash, path = rest.partition("/")
    if scheme in _HOSTS:
        user, at, host = authority.rpartition("@")
        host = _host(scheme, host).replace(".blob.", ".dfs.", int(scheme == "abfss"))
        authority = f"{user}{at}{host}"
    return f"{scheme}://{authority}{slash}{path}"


def location_spellings(location: str) -> set[str]:
    """The forms that other programs may have noted for a location: as it is, `canonical_location`,
    and those with the other schemes, host names and ports that mean the same."""
    canonical = canonical_location(location)
    scheme, mark, rest = canonical.partition("://")
    spellings = {plain_location(location), canonical}
    if not mark:
        return spellings
    authority, slash, path = rest.partition("/")
    hosts = {authority}
    if scheme == "abfss":
        hosts.add(authority.replace(".dfs.", ".blob.", 1))
    elif scheme in _PORTS:
        hosts.add(f"{authority}:{_PORTS[scheme]}")
    same = next((schemes for schemes in _SCHEMES if scheme in schemes), (scheme,))
    return spellings | {f"{each}://{host}{slash}{path}" for each in same for host in hosts}


def canonical_endpoint(endpoint: str) -> str:
    """The one form of a server's URL: the host in small letters, without the scheme's own port or a
    slash at its end. Without a scheme it is https."""
    scheme, sign, rest = endpoint.strip().rpartition("://")
    scheme = scheme.lower() if sign else "https"
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    return f"{scheme}://{user}{at}{_host(scheme, host)}{slash}{path}".rstrip("/")


def _host(scheme: str, host: str) -> str:
    host = host.lower()
    if scheme in _PORTS:
        host = re.sub(rf":0*{_PORTS[scheme]}$", "", host)
    return host.rstrip(".")


def _stored_case(path: str) -> str:
    """The path as its folders list it, where the disk takes names in any case."""
    stored = os.sep
    for name in filter(None, path.split(os.sep)):
        stored = os.path.join(stored, _entry(stored, name))
    return stored


def _entry(folder: str, name: str) -> str:
    path, other = os.path.join(folder, name), os.path.join(folder, name.swapcase())
    try:
        if other == path or not os.path.samefile(path, other):
            return name
        same = [entry for entry in os.listdir(folder) if entry.lower() == name.lower()]
        return name if name in same or not same else same[0]
    except OSError:  # it does not exist yet, or can't be read
        return name
