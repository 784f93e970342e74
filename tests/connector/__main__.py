"""`python -m tests.connector` writes docs/connector.md anew, and the counts in the README."""

import re

from tests.connector.documented import PAGE, counts_text, page_text

_README = PAGE.parents[1] / "README.md"
_COUNTS = re.compile(r"\d+ statements, clauses and options, .*? what does the job", re.DOTALL)

PAGE.write_text(page_text(), encoding="utf-8")
text, number = _COUNTS.subn(counts_text(), _README.read_text(encoding="utf-8"))
if number != 1:
    raise SystemExit(f"{_README} has {number} sentences with the counts of docs/connector.md.")
_README.write_text(text, encoding="utf-8")
