"""The audit log, as the command line wants it."""

from __future__ import annotations

import argparse

from paimon_magics.coordinator.audit.audit_table import AuditTable
from paimon_magics.coordinator.audit.trail import Trail
from paimon_magics.coordinator.runtime import Runtime
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog

__all__ = ["trail_of"]


def trail_of(
    runtime: Runtime,
    options: argparse.Namespace,
    catalog: Catalog,
    store: StateStore,
    coordinator: Coordinator,
) -> Trail | None:
    """The audit log, None where none is asked for. Raises SetupError for a name that is none, and
    for a coordinator that can't keep one."""
    text: str | None = options.audit_table
    if text is None:
        return None
    if options.embedded:
        raise SetupError(
            "A coordinator with --embedded keeps no audit log: it has one user.",
            hint="Leave out --audit-table or --embedded.",
        )
    database, dot, table = text.partition(".")
    if not (database and dot and table) or set(text) & set("/\\$` ") or "." in table:
        raise SetupError(
            f"`{text}` names no table for the audit log.",
            hint="Give its database and its own name, as --audit-table ops.audit.",
        )

    def properties_of(publication: Publication) -> tuple[tuple[str, str], ...]:
        request = coordinator.stored.request(publication.id)
        return () if request is None else request.properties

    name = TableName(table, database)
    to = AuditTable(catalog, coordinator.transactions, Settings(), name)
    trail = Trail(runtime, store.audit, to, properties_of, options.audit_every_ms)
    coordinator.when_published(trail.published)
    return trail
