"""A copy of PySpark's Spark installation, into which the workers of a cluster write."""

from __future__ import annotations

from pathlib import Path

from tests.backends.jvm import JVM_OPTIONS

__all__ = ["spark_home"]


def spark_home(folder: Path) -> Path:
    """Make the installation in `folder`, unless it exists; return the folder, for SPARK_HOME."""
    import pyspark

    if not folder.exists():
        folder.mkdir()
        for part in ("bin", "jars", "sbin"):
            (folder / part).symlink_to(Path(pyspark.__file__).parent / part)
        (folder / "conf").mkdir()
        (folder / "conf" / "java-opts").write_text(" ".join(JVM_OPTIONS))  # for the executors
    return folder
