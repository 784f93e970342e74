"""The version of the package; a module without imports."""

__all__ = ["__version__"]

__version__ = "0.1.0"
