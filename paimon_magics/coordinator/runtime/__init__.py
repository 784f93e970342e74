"""Threads, pools, timers, clocks and child processes: everything of the coordinator that runs.

No other package starts a thread. A test gives the same code threads whose time and order come from
a seed.
"""
