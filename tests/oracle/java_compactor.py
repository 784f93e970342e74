"""Compacts tables by Paimon's own Java library in the tests' JVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.oracle.java_reader import Warehouse

JavaCompact = Callable[[Warehouse, bool], bool]
"""Compacts the table `default.t` of a catalog, wholly or not, and tells whether there was
something to do."""


def java_compactor(spark: Any) -> JavaCompact:
    """The function of `TableCompactions.java`."""
    compactions = java_compactions(spark)

    def compact(warehouse: Warehouse, full: bool) -> bool:
        options = warehouse if isinstance(warehouse, Mapping) else {"warehouse": str(warehouse)}
        return bool(compactions.compact(dict(options), "default.t", full))

    return compact


@cache
def java_compactions(spark: Any) -> Any:
    """The object of `TableCompactions.java`; one of a JVM, since py4j knows classes by name."""
    thread = spark._jvm.java.lang.Thread.currentThread()
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.setParentClassLoader(thread.getContextClassLoader())
    compiler.cook(Path(__file__).with_name("TableCompactions.java").read_text())
    nothing = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 0)
    loaded = compiler.getClassLoader().loadClass("TableCompactions")
    return loaded.getConstructors()[0].newInstance(nothing)
