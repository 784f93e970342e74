"""A process of its own whose Spark has jars for S3: runs queries, and prints their rows as JSON.

Arguments: the catalog's options as JSON, the jars, and the queries.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

import paimon_magics


def main() -> None:
    options, jars, *queries = sys.argv[1:]
    catalog = json.loads(options)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraClassPath", jars)
        .config("spark.local.dir", os.environ["SCRATCH"])
        .config("spark.hadoop.fs.s3a.endpoint", catalog["s3.endpoint"])
        .config("spark.hadoop.fs.s3a.endpoint.region", catalog["s3.region"])
        .config("spark.hadoop.fs.s3a.access.key", catalog["s3.access-key"])
        .config("spark.hadoop.fs.s3a.secret.key", catalog["s3.secret-key"])
        .config("spark.hadoop.fs.s3a.path.style.access", "true")
        .config("spark.hadoop.fs.s3a.buffer.dir", os.environ["SCRATCH"])
        .getOrCreate()
    )
    with paimon_magics.connect(catalog=catalog, spark=spark, local_rows_max=0) as session:
        found = [
            [str(session.explain(query)), session.run(query).to_arrow().to_pylist()]
            for query in queries
        ]
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
