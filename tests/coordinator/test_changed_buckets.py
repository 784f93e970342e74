"""Commits that were prepared for another number of buckets than their table has by now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.errors import OutdatedPlanError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from tests.coordinator.inserts.serving import QUICK, Served, table_sql
from tests.coordinator.inserts.test_order import rest_catalog
from tests.coordinator.process import write

SHORT = f"'commit.max-retries' = '1', {QUICK}"
SQL = table_sql("id BIGINT NOT NULL, name STRING", f"'primary-key' = 'id', 'bucket' = '2', {SHORT}")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
IDS = range(6)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("buckets"), SQL) as served:
        yield served


@pytest.fixture
def served(shared: Served) -> Iterator[Served]:
    with Served(shared.folder, SQL, shared=shared) as served:
        yield served


def set_options(served: Served, **options: str) -> Any:
    """The answer to a change of the table's options, as an engine sends it."""
    changes = [{"action": "setOption", "key": k, "value": v} for k, v in options.items()]
    path = f"/v1/paimon/databases/default/tables/{served.name.table}"
    return served.call("POST", path, {"changes": changes})


def prepared_by_engine(served: Served, name: str) -> Callable[[], None]:
    """Rows that pypaimon has written, and will commit through the REST catalog."""
    builder = rest_catalog(served).get_table(str(served.name)).new_batch_write_builder()
    writer, committer = builder.new_write(), builder.new_commit()
    writer.write_arrow(pa.table({"id": list(IDS), "name": [name] * len(IDS)}, schema=SCHEMA))
    messages = writer.prepare_commit()
    return lambda: committer.commit(messages)


def check_refused(
    commit: Callable[[], object], caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    """The commit fails for that reason. pypaimon tries again whatever the answer is, and has the
    reason in its log only."""
    with pytest.raises(Exception) as raised:
        commit()
    assert reason in str(raised.value) + caplog.text


def test_engine_cannot_commit_for_the_number_of_buckets_before(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    before = prepared_by_engine(served, "old")
    assert set_options(served, bucket="4").status_code == 200
    prepared_by_engine(served, "new")()
    check_refused(before, caplog, "was written with 4 buckets, but these rows are for 2")
    assert sorted((row["id"], row["name"]) for row in served.rows()) == [(id, "new") for id in IDS]


def test_engine_cannot_commit_first_for_the_number_of_buckets_before(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    before = prepared_by_engine(served, "old")
    assert set_options(served, bucket="4").status_code == 200
    check_refused(before, caplog, "is empty, and will have 4 buckets, but these rows are for 2")
    assert served.insert([[1, "small"]], mode="sync_mode").status_code == 200
    assert served.ids() == [1]


def test_session_plans_a_first_insert_again_for_other_buckets(served: Served) -> None:
    with closing(RemoteCoordinator(At(served.process.address, served.process.token()))) as client:
        transaction = client.begin(served.name)
        messages = write(served.catalog, transaction, [{"id": 1, "name": "old"}])
        assert set_options(served, bucket="4").status_code == 200
        with pytest.raises(OutdatedPlanError, match="is empty, and will have 4 buckets"):
            client.commit(CommitRequest(transaction, Append(), messages))
        client.abort(transaction)
    assert served.insert([[1, "small"]], mode="sync_mode").status_code == 200
    assert [row["name"] for row in served.rows()] == ["small"]


def test_number_of_buckets_stays_while_small_inserts_need_it(served: Served) -> None:
    assert served.insert([[1, "a"]]).status_code == 200
    refused = set_options(served, bucket="4")  # the rows are loaded before it
    assert refused.status_code == 400
    error = refused.json()
    assert "has rows in 2 buckets and accepts small inserts" in error["message"]
    assert (
        "CALL sys.rescale(table => " in error["message"] and "bucket_num => 4" in error["message"]
    )
    assert served.insert([[2, "b"]], mode="sync_mode").status_code == 200
    assert set_options(served, auto_batch_load="false").status_code == 200
    assert set_options(served, bucket="4").status_code == 200
    assert set_options(served, auto_batch_load="true").status_code == 400
    assert set_options(served, bucket="2", auto_batch_load="true").status_code == 200
    assert served.insert([[3, "c"]], mode="sync_mode").status_code == 200
    assert served.ids() == [1, 2, 3]


LAYOUTS = {
    "fixed to dynamic buckets": ({"bucket": "4"}, {"bucket": "-1"}),
    "dynamic to fixed buckets": ({"bucket": "-1"}, {"bucket": "4"}),
    "fixed to postponed buckets": ({"bucket": "4"}, {"bucket": "-2"}),
    "postponed to fixed buckets": ({"bucket": "-2"}, {"bucket": "4"}),
    "other merge engine": ({"bucket": "2"}, {"merge-engine": "partial-update"}),
}


@pytest.mark.parametrize("committed_by", ["engine", "session"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_for_another_layout_are_not_committed(
    shared: Served, layout: str, committed_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = LAYOUTS[layout]
    options = ", ".join(f"'{key}' = '{value}'" for key, value in before.items())
    sql = table_sql("id BIGINT NOT NULL, name STRING", f"'primary-key' = 'id', {options}, {SHORT}")
    at = At(shared.process.address, shared.process.token())
    with (
        Served(shared.folder, sql, shared=shared) as served,
        closing(RemoteCoordinator(at)) as client,
    ):
        transaction = client.begin(served.name)
        if committed_by == "engine":
            commit = prepared_by_engine(served, "old")
        else:
            messages = write(served.catalog, transaction, [{"id": 1, "name": "old"}])
            commit = partial(client.commit, CommitRequest(transaction, Append(), messages))
        assert set_options(served, **after).status_code == 200
        check_refused(commit, caplog, "was changed since these rows were written")
        client.abort(transaction)
        assert served.insert([[1, "small"]], mode="sync_mode").status_code == 200
        assert [(row["id"], row["name"]) for row in served.rows()] == [(1, "small")]
