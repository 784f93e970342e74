"""What the coordinator's pages have in common: their style, and what a browser may do with them.

Plain HTML, nothing to load and nothing to run. Every text comes from somebody else, and is escaped
by who makes the parts.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable

from starlette.responses import HTMLResponse

__all__ = ["HEADERS", "Markup", "notice", "page"]

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

# Nothing is loaded or run by the page, it is shown in no other site's, and kept by nobody.
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; "
    "base-uri 'none'; frame-ancestors 'self'; form-action 'self'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Markup(str):
    """HTML that was made here, of texts that were escaped."""

    __slots__ = ()


def page(parts: Iterable[str]) -> str:
    """A page of these parts, which are HTML."""
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
    """A page that says what went wrong after a button was pressed, and leads back."""
    hint = f"<p>{html.escape(hint)}</p>" if hint else ""
    parts = [
        f'<h1>Paimon coordinator</h1><p class="bad">{html.escape(message)}</p>{hint}',
        '<p><a href="./">Back to the page</a></p>',
    ]
    return HTMLResponse(page(parts), status, headers=HEADERS)
