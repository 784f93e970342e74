"""Group commit: small inserts that are acknowledged when durable and loaded together, in order.

An insert is validated (`admission`), written to a durable `log`, and waits in its table's `queue`
until a process of its own writes a batch into the table (`loading`). `engine` has the threads that
drive it. The queue and the log's records are pure: values in, values out.
"""
