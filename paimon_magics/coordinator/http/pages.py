"""The common frame of the coordinator's pages: their style, and what a browser may do with them.

They are plain HTML that loads and runs nothing. The code that makes the parts of a page must escape
every text.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable

from paimon_magics.columnar import time_zones
from paimon_magics.coordinator.http.answers import HTMLResponse

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; }
h2 { font-size: 1.1rem; margin-top: 2rem; }
section { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; min-width: 46rem; }
th, td { border-bottom: 1px solid #8886; padding: .3rem .6rem; text-align: left;
  vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td.t, th.t { white-space: nowrap; }
td form { display: flex; gap: .4rem; }
code { font-size: .9em; overflow-wrap: anywhere; }
.bad { border-left: 4px solid #d33; padding-left: .6rem; }
.none { opacity: .7; }
"""

_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

# The page loads and runs nothing, is shown in no other site's frame, and is not cached.
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; "
    "base-uri 'none'; frame-ancestors 'self'; form-action 'self'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Markup(str):
    """HTML whose texts are escaped."""

    __slots__ = ()


def moment_text(at_ms: int) -> str:
    """A time in milliseconds since the epoch, as pages show it before they are brought into the
    reader's zone; "" for 0."""
    return time_zones.moment_text(at_ms, time_zones.UTC) if at_ms else ""


def page(parts: Iterable[str]) -> str:
    """Return a page with these parts, which are HTML."""
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            f"<title>Paimon coordinator</title><style>{_STYLE}</style></head><body>",
            *parts,
            "</body></html>",
        ]
    )


def notice(status: int, message: str, hint: str) -> HTMLResponse:
    """Return a page that says what went wrong after a button was pressed, with a link back."""
    hint = f"<p>{html.escape(hint)}</p>" if hint else ""
    parts = [
        f'<h1>Paimon coordinator</h1><p class="bad">{html.escape(message)}</p>{hint}',
        '<p><a href="./">Back to the page</a></p>',
    ]
    return HTMLResponse(page(parts), status, headers=HEADERS)
