"""File indexes: summaries of the values in a data file's columns, with which readers can skip the
file.

Source: the package `org.apache.paimon.fileindex` of Paimon 2.0.0.
"""
