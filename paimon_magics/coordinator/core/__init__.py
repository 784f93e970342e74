"""A coordinator's decisions about transactions, as a pure state machine: it does no I/O.

`step(state, event)` returns the next state and the effects that the caller must carry out, in their
order. The result of a slow effect comes back as an event. Time arrives inside events.

A transaction's life:

    ACTIVE ── commit asked ──> COMMITTING ── published ──> COMMITTED
      │                          │   └── no clear answer ──> UNCLEAR ── looked up ──> COMMITTED
      │                          └── refused ──┐               └── certainly absent ──> COMMITTING
      └── abort asked, lease expired ──────────┴──> ABORTING ── files removed ──> ABORTED

A COMMITTING transaction becomes ACTIVE again when only some messages of a compaction conflict: its
owner can commit the others. An UNCLEAR transaction becomes UNDETERMINED when no look-up can
determine its outcome any more. A COMMITTED transaction becomes LOST when an outside writer
overwrote its snapshot and it can't be published again.

Invariants: a table has at most one commit under way; the files of a committed transaction are never
removed; an answer is given only after its content is saved; the same question about a transaction
gets the same answer, also after a restart.
"""
