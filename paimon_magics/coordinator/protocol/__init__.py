"""The documents and errors that clients and coordinators exchange."""
