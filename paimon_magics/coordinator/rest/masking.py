"""What Paimon's Java client can't show of a message, kept out of the messages that it gets.

The client replaces a whole message by `******` if its letters and digits, without everything
between them, contain one of some markers (`SensitiveConfigUtils.redactText`). "The table has a
snapshot" contains `sas`. Messages hold no secrets here (`paimon_magics.redaction`), so they are
said in other words.

It also takes most messages for formats of `String.format`, some of them twice, and fails where one
has a `%`, such as that in the name of a table (`BadRequestException`, `NotImplementedException`).
"""

from __future__ import annotations

import re

__all__ = ["unmasked"]

_WORDS = {
    "token": "key",
    "tokens": "keys",
    "password": "pass phrase",
    "secret": "pass phrase",
    "secrets": "pass phrases",
    "credentials": "access data",
    "authorization": "permission",
    "signature": "sign",
}
_MARKERS = (
    "password",
    "secret",
    "token",
    "credential",
    "accesskey",
    "accountkey",
    "encryptionkey",
    "authorization",
    "privatekey",
    "apikey",
    "signature",
    "sas",
)
_LITERAL_MARKERS = ("sig=", '"sig"', "'sig'")
_KNOWN_WORD = re.compile(rf"(?<![\w.`'-])(?:{'|'.join(_WORDS)})(?![\w.`'-])", re.IGNORECASE)
# `sas` of several words, such as "has a snapshot" and "sessions ask".
_ACROSS = re.compile(r"(?<=s)([^a-z0-9]+)(?=a[^a-z0-9]*s)", re.IGNORECASE)
_BETWEEN = "[^a-z0-9]*"
_PERCENT = "\uff05"  # looks like one and is none; two of % would be shown as two by other clients
_MARKED = re.compile(
    "|".join(
        [_BETWEEN.join(marker) for marker in _MARKERS] + [re.escape(m) for m in _LITERAL_MARKERS]
    ),
    re.IGNORECASE,
)


def unmasked(message: str) -> str:
    """The message without markers: in other words, or with `…` for what is part of a name. The sign
    of percent is another one."""
    message = message.replace("%", _PERCENT)
    message = _KNOWN_WORD.sub(lambda found: _WORDS[found[0].lower()], message)
    message = _ACROSS.sub(lambda found: f"{found[1]}just ", message)
    while _MARKED.search(message):
        message = _MARKED.sub("…", message)
    return message
