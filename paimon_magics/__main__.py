"""`python -m paimon_magics`: what is installed, what a session would use, and what to do about it.

It prints the report that `paimon_magics.doctor()` shows in a notebook, for the warehouse that a
connect with the same arguments would open. It starts neither Spark nor a coordinator. The exit code
is 0 if nothing is to be done, 1 if something is, 2 for arguments that it does not understand.
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
        description="What is installed, what a session would rest on, and what to do about it.",
        epilog="The exit code is 0 where nothing is to be done, and 1 where something is.",
    )
    parser.add_argument("--version", action="version", version=f"paimon-magics {__version__}")
    parser.add_argument(
        "what", nargs="?", choices=["doctor"], default="doctor", help="the only thing so far"
    )
    parser.add_argument(
        "--warehouse",
        metavar="PLACE",
        help="its folder or URI; else what PAIMON_COORDINATOR or PAIMON_WAREHOUSE says, else the "
        "folder paimon-warehouse",
    )
    parser.add_argument(
        "--catalog",
        metavar="FILE",
        help="a JSON object of catalog options, keys of S3 too",
    )
    parser.add_argument(
        "--coordinator",
        metavar="WHAT",
        help="an address as http://127.0.0.1:8123 (its token is in PAIMON_COORDINATOR_TOKEN), "
        "embedded, or in-process",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
