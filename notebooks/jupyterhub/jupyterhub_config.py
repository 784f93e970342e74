"""A JupyterHub whose users share one Paimon warehouse, committed to by one coordinator.

For a try-out, by one person, on one machine: see README.md. All servers run under one account, so
that each user's kernel reads the files and environments of all others. `deploy/hub` has hubs for a
team. What belongs to the coordinator stands first; what a real hub has in its own way,
authenticator and spawner above all, stands last. Where the warehouse is not in the hub's folder,
PAIMON_HUB_WAREHOUSE says where, PAIMON_HUB_STORE where the coordinator's store is,
PAIMON_CATALOG_OPTIONS how the coordinator reaches the warehouse, and PAIMON_HUB_NOTEBOOK_OPTIONS
how users' servers do.
"""

import os
import sys
from pathlib import Path

c = get_config()  # noqa: F821

FOLDER = Path(os.environ.get("PAIMON_HUB_FOLDER", "paimon-hub")).resolve()
PORT = int(os.environ.get("PAIMON_HUB_PORT", "8000"))
COORDINATOR_PORT = int(os.environ.get("PAIMON_HUB_COORDINATOR_PORT", "8124"))
WAREHOUSE = os.environ.get("PAIMON_HUB_WAREHOUSE", str(FOLDER / "warehouse"))
STORE = os.environ.get("PAIMON_HUB_STORE", "")

# ---- the coordinator: a service that the hub starts, restarts, and gives tokens to ----

c.JupyterHub.services = [
    {
        "name": "paimon-coordinator",
        "url": f"http://127.0.0.1:{COORDINATOR_PORT}",
        "command": [
            sys.executable,
            "-m",
            "paimon_magics.coordinator",
            "--hub",
            f"--warehouse={WAREHOUSE}",
            f"--state={FOLDER / 'coordinator'}",
            *([f"--store={STORE}"] if STORE else []),
        ],
        # The hub gives a service no more of its own environment than it is told to.
        "environment": {
            name: os.environ[name]
            for name in ("PAIMON_CATALOG_OPTIONS", "PGPASSWORD")
            if name in os.environ
        },
        # The status page shows what a reader may see, without asking everybody to confirm that.
        "oauth_client_allowed_scopes": ["custom:paimon-coordinator:read"],
        "oauth_no_confirm": True,
    }
]

# ---- who may do what: scopes, and the roles that grant them ----

c.JupyterHub.custom_scopes = {
    "custom:paimon-coordinator:read": {
        "description": "Read the Paimon catalog, and see transactions and their state",
    },
    "custom:paimon-coordinator:write": {
        "description": "Commit to Paimon tables; create, alter and drop them",
        "subscopes": ["custom:paimon-coordinator:read"],
    },
    "custom:paimon-coordinator:admin": {
        "description": "Abort the transactions of others, drop databases, stop and resume",
        "subscopes": ["custom:paimon-coordinator:write"],
    },
}

# Whoever has a role may open the status page, too.
OPEN = "access:services!service=paimon-coordinator"
c.JupyterHub.load_groups = {
    "analysts": {"users": ["carol"]},
    "engineers": {"users": ["alice", "bob"]},
    "stewards": {"users": ["dora"]},
}
c.JupyterHub.load_roles = [
    {
        "name": "paimon-reader",
        "scopes": ["custom:paimon-coordinator:read", OPEN],
        "groups": ["analysts"],
    },
    {
        "name": "paimon-writer",
        "scopes": ["custom:paimon-coordinator:write", OPEN],
        "groups": ["engineers"],
    },
    {
        "name": "paimon-admin",
        "scopes": ["custom:paimon-coordinator:admin", OPEN],
        "groups": ["stewards"],
    },
]

# ---- the users' servers: `paimon_magics.connect()` finds the coordinator by these ----

# A server's token gets those of the scopes that its user holds.
c.Spawner.server_token_scopes = [
    "users:activity!user",
    "access:servers!user",
    "custom:paimon-coordinator:read",
    "custom:paimon-coordinator:write",
    "custom:paimon-coordinator:admin",
]
c.Spawner.environment = {
    "PAIMON_COORDINATOR": f"http://127.0.0.1:{COORDINATOR_PORT}/services/paimon-coordinator",
    "PAIMON_COORDINATOR_TOKEN": lambda spawner: spawner.api_token,
}
if "PAIMON_HUB_NOTEBOOK_OPTIONS" in os.environ:  # servers read and write data themselves
    c.Spawner.environment["PAIMON_CATALOG_OPTIONS"] = os.environ["PAIMON_HUB_NOTEBOOK_OPTIONS"]

# ---- the hub itself: for a try-out, where everybody has one password and one Unix user ----

c.JupyterHub.bind_url = f"http://127.0.0.1:{PORT}"
c.JupyterHub.db_url = f"sqlite:///{FOLDER / 'jupyterhub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(FOLDER / "cookie-secret")
c.ConfigurableHTTPProxy.pid_file = str(FOLDER / "proxy.pid")

c.JupyterHub.authenticator_class = "shared-password"
c.SharedPasswordAuthenticator.user_password = os.environ["PAIMON_HUB_PASSWORD"]
c.Authenticator.allowed_users = {"alice", "bob", "carol", "dora"}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = str(FOLDER / "home" / "{username}")
c.Spawner.args = ["--allow-root"] if os.geteuid() == 0 else []

(FOLDER / "home").mkdir(parents=True, exist_ok=True)
