"""An installation of Spark like PySpark's own, for what the workers of a cluster write there."""

from __future__ import annotations

from pathlib import Path

from tests.backends.jvm import JVM_OPTIONS

__all__ = ["spark_home"]


def spark_home(folder: Path) -> Path:
    """The installation in `folder`, which is made where it is not there; a value for SPARK_HOME."""
    import pyspark

    if not folder.exists():
        folder.mkdir()
        for part in ("bin", "jars", "sbin"):
            (folder / part).symlink_to(Path(pyspark.__file__).parent / part)
        (folder / "conf").mkdir()
        (folder / "conf" / "java-opts").write_text(" ".join(JVM_OPTIONS))  # of the executors
    return folder
