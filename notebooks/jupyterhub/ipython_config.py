"""What every notebook of the hub's users begins with.

A user's own IPython configuration comes after it, and `%paimon config` after that. Put it where
IPython looks for what holds for all: `{sys.prefix}/etc/ipython/` of the environment that their
kernels run in, or `/etc/ipython/`. Nothing of it stands in anybody's home.
"""

c = get_config()  # noqa: F821

c.InteractiveShellApp.extensions = ["paimon_magics"]
# Where the coordinator is, each server learns from its environment: see jupyterhub_config.py.
c.PaimonMagics.display_rows = 50
c.PaimonMagics.driver_memory = "1g"
c.PaimonMagics.master = "local[2]"
