"""INSERT and its kin: of statements, frames, streams, and into tables that are made for it."""
