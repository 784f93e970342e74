"""A process that publishes numbered files in a folder, each unless it exists, and prints the
numbers of those that it made."""

from __future__ import annotations

import os
import sys

from paimon_magics.tables.stores.local_store import publish_local_file


def main(folder: str, me: str, names: str) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    for name in range(int(names)):
        if publish_local_file(os.path.join(folder, f"snapshot-{name}"), me.encode() * 100):
            print(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
