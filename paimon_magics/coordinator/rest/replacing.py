"""`CREATE OR REPLACE TABLE` through the REST catalog: remove the rows, then set the new schema.

It takes two steps, as in Paimon's own catalogs: an overwrite that removes all rows, then the new
schema, with the next number. Earlier snapshots and schemas stay, and can be read by their numbers.
If the process dies in between, the table is empty and has its old schema.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from paimon_magics.coordinator.rest.commits import require_looked_at
from paimon_magics.coordinator.rest.endpoints import Call, table_of
from paimon_magics.coordinator.rest.errors import bad_request, not_offered
from paimon_magics.coordinator.rest.requests import table_name
from paimon_magics.coordinator.rest.spelling import warn_of_spelling
from paimon_magics.coordinator.service.opening import open_transaction
from paimon_magics.coordinator.service.publication_watch import publication_of
from paimon_magics.coordinator.service.served import Context
from paimon_magics.planning.commits.requests import CommitRequest, OverwritePartitions
from paimon_magics.planning.schemas.rules import check_schema
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.rest_documents import schema_from_document
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.commits.fenced_commits import commit_fenced
from paimon_magics.tables.writing.cleanup import tidy_up

__all__ = ["replace_table"]


def replace_table(context: Context, call: Call) -> Any:
    """The handler. A table that can't be replaced this way is answered 501: then engines drop it
    and create it again."""
    name = table_name(call.names)
    if name.branch is not None:
        raise bad_request(f"`{name}` is a branch: replace its table.")
    table = table_of(context, name)
    schema = schema_from_document(call.body.get("schema"))
    check_schema(schema, from_engine=True)
    warn_of_spelling(name, schema.options)
    if context.catalog.metastore != "filesystem":
        raise not_offered("replacing tables")
    if list(schema.partition_keys) != list(table.schema.get("partitionKeys") or []):
        raise not_offered(f"other partition keys for `{name}`: drop it and create it again")
    require_looked_at(context, name, table.location)
    with (yield from context.changing(name)):
        _remove_rows(context, name)
        context.recent.forget(table.location)
        context.catalog.replace_table(name, schema)
    return None


def _remove_rows(context: Context, name: TableName) -> None:
    loaded, transaction = open_transaction(context.catalog, name, None)
    request = CommitRequest(transaction, OverwritePartitions(swallow_newer=True))
    fence = None if context.fence is None else context.fence()
    try:
        asked = decoded(loaded, request)
        receipt = commit_fenced(asked, context.catalog.publish, fence)
    finally:
        tidy_up(loaded, transaction, frozenset())
    if context.watch is not None:
        now_ms = int(time.time() * 1000)
        publication = publication_of(transaction.file_prefix, asked, receipt, now_ms)
        if publication is not None:
            context.watch.note(replace(publication, is_transaction=False))
