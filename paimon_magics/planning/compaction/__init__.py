"""Which files of a bucket are compacted, and how: pure functions of files, options and the time."""
