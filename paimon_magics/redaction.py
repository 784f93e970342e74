"""Redaction of secrets in texts: error messages and their causes, logs, and all that is displayed.

A secret that this process gets (a secret key, a session token, a password) is registered with
`conceal`. `redacted` removes all registered secrets from a text, and everything that looks like a
secret. A PaimonMagicsError redacts itself and the exceptions that caused it (`scrub`). A log
redacts its lines. The module uses no clock and no disk, and imports the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"

# A shorter secret would also be found inside ordinary words.
_CHARACTERS_MIN = 6
# These are in names of options, files and addresses: without them a message can't be followed, and
# a mask in a well-known name would reveal the secret.
_ORDINARY = frozenset(
    {
        "catalog",
        "credential",
        "default",
        "localhost",
        "paimon",
        "passwd",
        "password",
        "postgres",
        "postgresql",
        "secret",
        "signature",
        "warehouse",
    }
)
_SHOWN_CHARACTERS_MIN = 16
_DEPTH_MAX = 50
_SECRET_NAME = re.compile(
    r"secret|password|passwd|token|credential|signature|(private|account|shared)[-_.]?key", re.I
)
# Options about a secret that are no secrets themselves: its provider, its file.
_HARMLESS_NAME = re.compile(
    r"(provider|loader|path|file|url|uri|endpoint|enabled|class|header|type|expir\w*)$", re.I
)
_IN_A_URL = re.compile(r"(://[^\s/@:'\"]*):([^\s/@'\"]+)@")
_PATTERNS = (
    (_IN_A_URL, rf"\1:{MASK}@"),
    (re.compile(r"(?i)(sc://\S*;token=)[^;\s'\"`]+"), rf"\1{MASK}"),  # a server of Spark Connect
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {MASK}"),
    (re.compile(r"(?i)(X-Amz-(?:Signature|Security-Token|Credential)=)[^&\s'\"]+"), rf"\1{MASK}"),
    (
        re.compile(
            r"(?i)((?:secret[-_.]?(?:access[-_.]?)?key|access[-_.]?key[-_.]?secret"
            r"|se(?:ssion|curity)[-_.]?token|password)[\"']?\s*[:=]\s*[\"']?)[\w.~+/=!@#$%^*-]{6,}"
        ),
        rf"\1{MASK}",
    ),
)

_secrets: set[str] = set()


class _RedactedError(Exception):
    """Replaces a library's exception whose text has a secret and can't be changed."""


def is_secret_name(name: str) -> bool:
    """Whether an option, setting or variable with this name holds a secret."""
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.search(name)


def conceal(secret: str | None) -> None:
    """Register a secret: `redacted` removes it from now on.

    A text that is short, or a word of every message (`secret`, `paimon`), is ignored.
    """
    secret = (secret or "").strip()
    if len(secret) < _CHARACTERS_MIN or secret.lower() in _ORDINARY:
        return
    _secrets.add(secret)
    encoded = secret.replace("%", "%25")
    for plain, code in (("/", "%2F"), ("+", "%2B"), ("=", "%3D")):
        encoded = encoded.replace(plain, code)
    _secrets.update((encoded, encoded.replace("%2F", "/"), repr(secret)[1:-1]))


def conceal_options(options: Mapping[str, str]) -> None:
    """Register all secrets among catalog options or environment variables."""
    for name, value in options.items():
        if is_secret_name(name):
            conceal(str(value))
        for match in _IN_A_URL.finditer(str(value)):
            conceal(match[2])


def masked(name: str, value: str) -> str:
    """An option's value for display: secrets are hidden, access keys shown in part."""
    if is_secret_name(name):
        return MASK
    if re.search(r"access[-_.]?key", name, re.I):
        return f"{value[:4]}…{value[-4:]}" if len(value) >= _SHOWN_CHARACTERS_MIN else MASK
    return redacted(value)


def redacted(text: str) -> str:
    """`text` without secrets."""
    for secret in sorted(_secrets, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, MASK)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def scrub(error: BaseException | None) -> None:
    """Remove secrets from an exception, its causes and its contexts, in place."""
    if error is None or not _secrets:
        return
    pending, seen = [error], set[int]()
    while pending and len(seen) < _DEPTH_MAX:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        _scrub_one(current)
        for link in ("__cause__", "__context__"):
            linked = getattr(current, link)
            if linked is None:
                continue
            _scrub_one(linked)
            if _tells(linked):
                stand_in = _RedactedError(f"{type(linked).__name__}: {redacted(_text(linked))}")
                before, linked = linked, stand_in.with_traceback(linked.__traceback__)
                if getattr(current, "_hidden_cause", None) is before:
                    current._hidden_cause = linked  # type: ignore[attr-defined]
                    pending.append(linked)
                    continue
                suppressed = current.__suppress_context__
                setattr(current, link, linked)
                current.__suppress_context__ = suppressed
            pending.append(linked)


def _scrub_one(error: BaseException) -> None:
    if not _tells(error):
        return
    try:
        error.args = tuple(_scrubbed(value) for value in error.args)
        for name in [*vars(error), "strerror", "filename", "__notes__"]:
            value = getattr(error, name, None)
            if isinstance(value, str | list | tuple | dict):
                setattr(error, name, _scrubbed(value))
    except Exception:  # it can't be changed: `scrub` replaces it
        return


def _scrubbed(value: object) -> object:
    match value:
        case str():
            return redacted(value)
        case bytes():
            return redacted(value.decode(errors="replace")).encode()
        case list():
            return [_scrubbed(member) for member in value]
        case tuple() if type(value) is tuple:
            return tuple(_scrubbed(member) for member in value)
        case dict():
            return {key: _scrubbed(member) for key, member in value.items()}
        case _:
            return value


def _tells(error: BaseException) -> bool:
    """Whether an exception's text, arguments or notes have a secret."""
    text = _text(error)
    notes = getattr(error, "__notes__", ())
    shown = f"{text}\n{error.args!r}\n{notes!r}"
    return any(secret in shown for secret in _secrets) or redacted(text) != text


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # some get their text from another process, which may be gone
        return ""
