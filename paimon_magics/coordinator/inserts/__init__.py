"""Group commit: small inserts that are acknowledged when durable and loaded together, in order.

`records` and `queueing` are pure (the log's form, and what happens to a table's inserts); `logs`
keeps what was acknowledged, `values` and `door` judge rows before they get there, `flusher` writes
them into the table from a process of its own, and `service` is where these meet.
"""
