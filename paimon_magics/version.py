"""The version of the package; a module without imports."""

__version__ = "0.1.0"
