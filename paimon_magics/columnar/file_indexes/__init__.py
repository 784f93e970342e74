"""File indexes: what a data file's columns hold, so that readers can leave the file out.

Source: the package `org.apache.paimon.fileindex` of Paimon 2.0.0.
"""
