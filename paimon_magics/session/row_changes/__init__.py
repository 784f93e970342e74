"""MERGE, UPDATE and DELETE: which rows of a table change, and one commit that changes them.

The walk of a row change. Each step knows those below it, and none above:

| step | module |
|---|---|
| what a statement would change, without a commit | `previews` |
| DELETE and UPDATE: plan, write, commit; again if others came first | `delete_update` |
| MERGE likewise; INSERT into a table with `upsert-key` is one | `merge` |
| append tables: files rewritten, or rows marked by deletion vectors | `append_changes` |
| MERGE: what is read of target and source, and their join | `merge_join` |
| DELETE and UPDATE of few keys, in this process | `point_changes` |
| DELETE and UPDATE: the selected rows, and their new values | `selection` |
| the changed rows as their table takes them | `written_rows` |
| MERGE refuses a target row that several source rows would change | `merge_join` |

From there a row change goes on as an INSERT: `session/writes/write_jobs.py` writes the rows,
`session/writes/transactions.py` commits them. What may change, and what of it, is decided without a
session in `planning/row_changes/`; jobs and files are those of `spark/` and `tables/row_changes/`.
"""
