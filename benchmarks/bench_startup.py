"""The time of `import paimon_magics` and `%load_ext paimon_magics` in a fresh Python process.

IPython's own start is not counted: the timer runs inside the new process.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from measure import report

_IMPORT = """
import time
started = time.perf_counter()
import paimon_magics
print((time.perf_counter() - started) * 1000)
"""

_LOAD_EXT = """
import time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
started = time.perf_counter()
import paimon_magics
shell.run_line_magic("load_ext", "paimon_magics")
print((time.perf_counter() - started) * 1000)
"""


def main() -> None:
    for what, script in (
        ("import paimon_magics", _IMPORT),
        ("import and %load_ext paimon_magics", _LOAD_EXT),
    ):
        times = [
            float(subprocess.check_output([sys.executable, "-c", script]).split()[-1])
            for _ in range(7)
        ]
        report(what, statistics.median(times))


if __name__ == "__main__":
    main()
