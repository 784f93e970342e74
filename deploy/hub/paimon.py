"""What each of the hubs here has in common: coordinators, rights, limits, and what notebooks get.

`jupyterhub_config.py` loads it. What it needs is in the environment of the hub, which no user's
server gets:

PAIMON_HUB_COORDINATORS        NAME=URL of each coordinator, with spaces between
PAIMON_HUB_COORDINATOR_TOKENS  a token of each, in that order: `openssl rand -hex 32`
PAIMON_HUB_NOTEBOOK_OPTIONS    catalog options with the keys of notebooks, as a JSON object; these
                               get into users' servers
"""

import json
import os

import jupyterhub

c = get_config()  # noqa: F821

COORDINATORS = dict(one.split("=", 1) for one in os.environ["PAIMON_HUB_COORDINATORS"].split())
TOKENS = os.environ["PAIMON_HUB_COORDINATOR_TOKENS"].split()
SCOPES = [f"custom:paimon-coordinator:{word}" for word in ("read", "write", "admin")]

# ---- coordinators: the hub starts none of them, so none of them can end the hub ----

c.JupyterHub.services.extend(
    {
        "name": name,
        "url": url,
        "api_token": token,
        # For one that is not there the hub waits so many seconds (before version 6: 30), and
        # then begins without it.
        **({"timeout": 5} if jupyterhub.version_info[0] >= 6 else {}),
        "oauth_client_allowed_scopes": SCOPES[:1],
        "oauth_no_confirm": True,
    }
    for (name, url), token in zip(COORDINATORS.items(), TOKENS, strict=True)
)

# ---- who may do what: a role for each scope and its group; GRANT says more, table by table ----

c.JupyterHub.custom_scopes = {
    SCOPES[0]: {"description": "Read all tables, and see transactions and their state"},
    SCOPES[1]: {"description": "Write, create, alter and drop tables", "subscopes": SCOPES[:1]},
    SCOPES[2]: {"description": "Everything, also grants and pauses", "subscopes": SCOPES[1:2]},
}
OPEN = [f"access:services!service={name}" for name in COORDINATORS]
GROUPS = ("paimon-readers", "paimon-writers", "paimon-admins")
c.JupyterHub.load_roles.extend(
    {"name": group.removesuffix("s"), "scopes": [scope, *OPEN], "groups": [group]}
    for scope, group in zip(SCOPES, GROUPS, strict=True)
)

# ---- users' servers ----

c.Spawner.server_token_scopes = ["users:activity!user", "access:servers!user", *SCOPES]
c.Spawner.environment = {
    "PAIMON_COORDINATOR": ",".join(
        f"{url.rstrip('/')}/services/{name}" for name, url in COORDINATORS.items()
    ),
    # The user's own, with the rights that the user has.
    "PAIMON_COORDINATOR_TOKEN": lambda spawner: spawner.api_token,
}
if "PAIMON_HUB_NOTEBOOK_OPTIONS" in os.environ:
    # Keys that may read and put data, and nothing else: never those of the coordinator.
    options = json.loads(os.environ["PAIMON_HUB_NOTEBOOK_OPTIONS"])
    c.Spawner.environment["PAIMON_CATALOG_OPTIONS"] = json.dumps(options)
c.KubeSpawner.environment = c.Spawner.environment  # which Zero to JupyterHub has set

# An idle notebook with a Spark session takes 0.6 to 0.8 GB (docs/capacity.md).
c.Spawner.mem_limit = "4G"
c.Spawner.cpu_limit = 2.0
c.JupyterHub.active_server_limit = 50
# A kernel without work for an hour ends, with an open browser, too; its server after that. A user
# can't change what stands on the command line.
c.Spawner.args = [
    "--MappingKernelManager.cull_idle_timeout=3600",
    "--MappingKernelManager.cull_interval=300",
    "--MappingKernelManager.cull_connected=True",
    "--TerminalManager.cull_inactive_timeout=3600",
    "--ServerApp.shutdown_no_activity_timeout=3600",
]
