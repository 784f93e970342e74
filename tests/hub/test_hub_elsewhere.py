"""The example hub with its warehouse in S3 and its coordinator's store in PostgreSQL, as
its README says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.backends.s3 import new_bucket
from tests.coordinator.postgres import start_postgres
from tests.coordinator.process import create_table, read
from tests.hub.hub import COMMIT_TEN, Hub, install_proxy


@pytest.mark.soak
def test_hub_works_with_warehouse_on_s3_and_store_in_postgresql(tmp_path: Path) -> None:
    server = start_postgres()
    try:
        with new_bucket() as bucket:
            catalog = create_table(bucket.options, "CREATE TABLE t (k INT)")
            variables = {
                **server.environment,
                "PAIMON_HUB_STORE": server.empty_database(),
                "PAIMON_HUB_WAREHOUSE": bucket.options["warehouse"],
                "PAIMON_CATALOG_OPTIONS": json.dumps(bucket.options),
                "PAIMON_HUB_NOTEBOOK_OPTIONS": json.dumps(bucket.options),
            }
            hub = Hub(tmp_path, install_proxy(tmp_path), variables)
            try:
                alice = hub.user("alice")
                alice.start_server()
                assert alice.run(COMMIT_TEN.replace("FIRST", "0")) == "done by alice\n"
                printed = alice.run(
                    "import paimon_magics\n"
                    "session = paimon_magics.connect()\n"
                    "print(session.run('SELECT count(*) FROM t').to_arrow()[0][0])"
                )
                assert printed.endswith("10\n")
            finally:
                hub.stop()
            assert len(read(catalog)) == 10
            with server.administer() as connection:
                asked = "SELECT count(*) FROM information_schema.tables WHERE table_schema = %s"
                (tables,) = connection.execute(asked, ["paimon_coordinator"]).fetchone() or (0,)
                assert int(str(tables)) > 0
    finally:
        server.remove()
