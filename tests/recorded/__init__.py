"""Scenarios that Paimon 2.0.0's Spark connector was recorded with, run by sessions of ours."""
