"""The state machine of one table's queue: values in, values out."""
