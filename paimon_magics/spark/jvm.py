"""The objects of Spark's JVM that PySpark has no public method for. No other module accesses them.

Only a session in this process has them. `sessions` and `idle_memory` use PySpark's gateway to the
JVM as well: to stop a JVM, and to make it return memory.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_CATALOG = "_paimon_magics_catalog"


def activate(spark: SparkSession) -> None:
    """Make the session the JVM's active one."""
    session: Any = spark
    classes = session._jvm.org.apache.spark.sql.classic
    classes.SparkSession.setActiveSession(session._jsparkSession)


def has_temporary_view(spark: SparkSession, name: str) -> bool:
    """Whether a name of one part is a temporary view of the session. No catalog is asked."""
    session: Any = spark
    catalog = vars(session).get(_CATALOG)  # the same one for the session's life
    if catalog is None:
        catalog = vars(session)[_CATALOG] = session._jsparkSession.sessionState().catalog()
    return bool(catalog.getTempView(name).isDefined())


def status_store(spark: SparkSession) -> Any:
    """The store behind Spark's SQL page, which exists without the page too (public in Scala, and
    unstable)."""
    session: Any = spark
    return session._jsparkSession.sharedState().statusStore()


def settings_text(spark: SparkSession) -> str:
    """All settings that have been set, in one text and by one call."""
    conf: Any = spark.conf
    return str(conf._jconf.getAllAsJava().toString())
