"""What the command lines of all commands share: their form, their options, their question."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from paimon_magics.errors import InvalidValueError


class CommandParser(argparse.ArgumentParser):
    """A parser whose help, and that of its words, has examples in lines of their own."""

    def __init__(self, **words: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **words)


def confirm(question: str, options: argparse.Namespace) -> None:
    """Go on if the user agrees, by `--yes` or at a terminal. Raises InvalidValueError otherwise."""
    if options.yes:
        return
    if sys.stdin is not None and sys.stdin.isatty():
        print(f"{question} Type yes to go on: ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() == "yes":
            return
    raise InvalidValueError(question, hint="Nothing was changed. Repeat the command with --yes.")


def add_catalog_options(command: argparse.ArgumentParser) -> None:
    """Add the options that name a warehouse, as a coordinator's."""
    command.add_argument(
        "--warehouse", help="the warehouse's folder or URI (default: that of the state folder)"
    )
    command.add_argument("--catalog", help="a JSON file of catalog options, for secrets")
    command.add_argument(
        "--catalog-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one of Paimon's catalog options; may be repeated",
    )


def add_state_options(command: argparse.ArgumentParser) -> None:
    """Add the options that name a state folder and a store, as a coordinator's."""
    command.add_argument("--state", required=True, help="the state folder of the coordinator")
    command.add_argument("--store", help="postgresql://… if the coordinator's store is there")
    command.add_argument(
        "--log",
        choices=("store", "warehouse"),
        default="store",
        help="where the coordinator keeps small inserts (default: store)",
    )


def add_yes(command: argparse.ArgumentParser) -> None:
    """Add the option that answers the command's question."""
    command.add_argument(
        "--yes",
        action="store_true",
        help="go on where something can't be undone, without a question",
    )


def add_place(command: argparse.ArgumentParser) -> None:
    """Add the options that name a coordinator, by its state folder or its address."""
    command.add_argument("--state", help="the state folder of the coordinator")
    command.add_argument("--store", help="postgresql://… if the coordinator's store is there")
    command.add_argument("--address", help="ask the coordinator at this address instead")
