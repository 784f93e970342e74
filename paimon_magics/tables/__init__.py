"""The Paimon table: catalog, schema, types, files, commits. The only importer of pypaimon."""
