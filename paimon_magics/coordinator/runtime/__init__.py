"""Threads, pools, timers, clocks and child processes: everything of the coordinator that runs.

`interface` says what the rest may use, `threads` does it with threads of this process. No other
room starts a thread. A test gives the same code a runtime whose time and order come from a seed.
"""
