"""`python -m paimon_magics`: what is installed, what a session would use, and what to fix.

It prints the report that `paimon_magics.doctor()` shows in a notebook, for the warehouse that a
connect with the same arguments would open. It starts neither Spark nor a coordinator. The exit code
is 0 if nothing needs fixing, 1 if something does, and 2 for invalid arguments.
"""

from __future__ import annotations

import argparse
import json
import sys

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.version import __version__

_SOMETHING_TO_DO = 1
_NOT_UNDERSTOOD = 2


def main(arguments: list[str] | None = None) -> int:
    """Print the report; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        from paimon_magics.coordinator.ownership.catalog_options import catalog_options
        from paimon_magics.session.doctor import doctor_of_place
        from paimon_magics.session.place_words import PlaceWords
    except ImportError as error:
        print(
            f"paimon-magics {__version__} can't be loaded by {sys.executable}: {error}\n"
            f"Run {sys.executable} -m pip install paimon-magics, or choose the Python that has it.",
            file=sys.stderr,
        )
        return _SOMETHING_TO_DO
    try:
        catalog = None
        if options.catalog is not None:
            catalog = catalog_options(
                warehouse=options.warehouse, file=options.catalog, environment={}, assignments=()
            )
        warehouse = options.warehouse if catalog is None else None
        report = doctor_of_place(PlaceWords(warehouse, catalog, options.coordinator))
    except PaimonMagicsError as error:
        print(error.text(), file=sys.stderr)
        return _NOT_UNDERSTOOD
    if options.json:
        document = {"version": __version__, **report.document()}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print(report)
    return _SOMETHING_TO_DO if report.advice else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m paimon_magics",
        description="Report what is installed, what a session would use, and what to fix.",
        epilog="Exit code: 0 if nothing needs fixing, 1 if something does, 2 for bad arguments.",
    )
    parser.add_argument("--version", action="version", version=f"paimon-magics {__version__}")
    parser.add_argument(
        "what", nargs="?", choices=["doctor"], default="doctor", help="the only report so far"
    )
    parser.add_argument(
        "--warehouse",
        metavar="PLACE",
        help="folder or URI of the warehouse; default: the place in PAIMON_COORDINATOR or "
        "PAIMON_WAREHOUSE, else the folder paimon-warehouse",
    )
    parser.add_argument(
        "--catalog",
        metavar="FILE",
        help="a file with a JSON object of catalog options, S3 keys included",
    )
    parser.add_argument(
        "--coordinator",
        metavar="WHAT",
        help="an address such as http://127.0.0.1:8123 (its token is in PAIMON_COORDINATOR_TOKEN), "
        "embedded, or in-process",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
