"""A JupyterHub on one machine, whose users have an account, a network and limits of their own.

docs/hub.md says how it is installed. `site.py` beside this file has what is yours: authenticator,
users and groups. The hub runs as root, since it makes accounts and starts units under them; what
users reach of it is its web pages.
"""

import os
import pwd
import subprocess
import sys
from pathlib import Path

c = get_config()  # noqa: F821

# One that is missing must be an error: `load_subconfig` leaves it out without a word.
HERE = Path(__file__).resolve().parent
COMMON, SITE = (str((HERE / name).resolve(strict=True)) for name in ("paimon.py", "site.py"))
STATE = Path(os.environ.get("STATE_DIRECTORY", "/var/lib/paimon-hub"))
HOMES = Path(os.environ.get("PAIMON_HUB_HOMES", "/srv/paimon-hub"))
NETWORK = os.environ.get("PAIMON_HUB_NETWORK", "/usr/local/lib/paimon-hub/network")
GATEWAY = os.environ.get("PAIMON_HUB_PREFIX", "10.88") + ".0.1"
# Accounts have a prefix: a user of the hub with the name `root` or `postgres` is not that account.
ACCOUNTS = os.environ.get("PAIMON_HUB_ACCOUNTS", "paimon-")
# What no user's server may open, whatever its mode says.
HIDDEN = os.environ.get("PAIMON_HUB_HIDDEN", f"-/etc/paimon-hub -{STATE}")

load_subconfig(COMMON)  # noqa: F821

# ---- the hub: pages on 127.0.0.1 behind your proxy with TLS, its API on the users' network ----

c.JupyterHub.bind_url = os.environ.get("PAIMON_HUB_BIND", "http://127.0.0.1:8000")
c.JupyterHub.hub_ip = GATEWAY
c.JupyterHub.db_url = f"sqlite:///{STATE / 'jupyterhub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(STATE / "cookie-secret")
c.ConfigurableHTTPProxy.pid_file = str(STATE / "proxy.pid")
c.JupyterHub.cleanup_servers = False  # units go on while the hub is started again
c.Authenticator.username_pattern = r"^[a-z][a-z0-9-]{0,23}$"

# ---- users' servers: a unit of systemd for each ----

c.JupyterHub.spawner_class = "systemdspawner.SystemdSpawner"
c.Spawner.cmd = [str(Path(sys.prefix) / "bin" / "jupyterhub-singleuser")]
c.SystemdSpawner.username_template = ACCOUNTS + "{USERNAME}"
c.SystemdSpawner.unit_name_template = "paimon-hub-{USERNAME}"
c.SystemdSpawner.user_workingdir = str(HOMES / "{USERNAME}")
c.SystemdSpawner.extra_paths = [str(Path(sys.prefix) / "bin")]
c.SystemdSpawner.slice = "paimon-hub.slice"
c.SystemdSpawner.isolate_tmp = True
c.SystemdSpawner.isolate_devices = True
c.SystemdSpawner.disable_user_sudo = True
c.SystemdSpawner.unit_extra_properties = {
    # Only the user's own processes are seen.
    "ProtectProc": "invisible",
    # Only what the unit of network made for this user is reached.
    "NetworkNamespacePath": f"/run/netns/{ACCOUNTS}{{USERID}}",
    "IPAddressDeny": "169.254.0.0/16 fd00:ec2::254",  # metadata of clouds
    # Only the user's own files are there to be written, and others' homes are not there.
    "ProtectSystem": "strict",
    "ProtectHome": "tmpfs",
    "TemporaryFileSystem": f"{HOMES}:ro",
    "BindPaths": f"{HOMES}/{{USERNAME}}",
    "InaccessiblePaths": HIDDEN,
    "UMask": "0077",
    "PrivateIPC": "yes",
    "KeyringMode": "private",
    # No way to more rights.
    "CapabilityBoundingSet": "",
    "RestrictSUIDSGID": "yes",
    "RestrictNamespaces": "yes",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectControlGroups": "yes",
    "ProtectClock": "yes",
    "LockPersonality": "yes",
    # Memory and CPU have limits by paimon.py.
    "MemorySwapMax": "0",
    "TasksMax": "1024",
    "LimitCORE": "0",
}


def prepare(spawner):
    """Make the account and the network of a user, unless they are there."""
    account = ACCOUNTS + spawner.user.name
    home = HOMES / spawner.user.name
    try:
        pwd.getpwnam(account)
    except KeyError:
        words = ["--system", "--user-group", "--create-home", f"--home-dir={home}"]
        words += ["--skel=/nonexistent", "--shell=/usr/sbin/nologin"]
        subprocess.run(["useradd", *words, account], check=True)
        home.chmod(0o700)
    words = [NETWORK, "add", str(spawner.user.id)]
    spawner.ip = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def clear(spawner):
    """Remove the network of a user whose server has ended."""
    subprocess.run([NETWORK, "remove", str(spawner.user.id)], check=False)


c.Spawner.pre_spawn_hook = prepare
c.Spawner.post_stop_hook = clear

load_subconfig(SITE)  # noqa: F821
