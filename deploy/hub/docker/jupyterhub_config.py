"""A JupyterHub whose users have a container and a network of their own.

docs/hub.md says how it is installed. The hub alone has Docker's socket, which means everything on
this machine; no user's code runs in its container.
"""

import ipaddress
import os
from pathlib import Path

from docker.types import IPAMConfig, IPAMPool

c = get_config()  # noqa: F821

# One that is missing must be an error: `load_subconfig` leaves it out without a word.
HERE = Path(__file__).resolve().parent
COMMON, SITE = (str((HERE / name).resolve(strict=True)) for name in ("paimon.py", "site.py"))
STATE = "/srv/paimon-hub"
# Users' networks are cut out of this one, sixteen addresses each: 4,096 users.
POOL = ipaddress.ip_network(os.environ.get("PAIMON_HUB_POOL", "10.89.0.0/16"))
# The containers that a user's server reaches, with their names there.
NEIGHBOURS = dict(one.split("=", 1) for one in os.environ["PAIMON_HUB_NEIGHBOURS"].split())

load_subconfig(COMMON)  # noqa: F821

# ---- the hub: its pages at the published port, its API on users' networks ----

c.JupyterHub.bind_url = "http://0.0.0.0:8000"
c.JupyterHub.hub_ip = "0.0.0.0"
c.JupyterHub.hub_connect_ip = "hub"
c.JupyterHub.db_url = f"sqlite:///{STATE}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = f"{STATE}/cookie-secret"
c.ConfigurableHTTPProxy.pid_file = f"{STATE}/proxy.pid"
c.Authenticator.username_pattern = r"^[a-z][a-z0-9-]{0,23}$"

# ---- users' servers: a container for each ----

c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
c.DockerSpawner.image = os.environ["PAIMON_HUB_IMAGE"]
c.DockerSpawner.pull_policy = "never"  # compose has built it
c.DockerSpawner.name_template = "paimon-user-{username}"
c.DockerSpawner.use_internal_ip = True
c.DockerSpawner.remove = True
c.DockerSpawner.notebook_dir = "/srv/user"
c.DockerSpawner.volumes = {"paimon-home-{username}": "/srv/user"}
c.DockerSpawner.extra_create_kwargs = {"user": "1000"}
c.DockerSpawner.extra_host_config = {
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "pids_limit": 1024,
    "memswap_limit": "4g",  # as much as the memory of paimon.py: no swap
    "ipc_mode": "private",
    "init": True,
}


async def prepare(spawner):
    """Make a user's network, with the hub and its neighbours in it and no way out."""
    name = spawner.network_name = f"paimon-user-{spawner.user.id}"
    found = await spawner.docker("networks", names=[name])
    if name not in {one["Name"] for one in found}:
        first = POOL.network_address + 16 * spawner.user.id
        subnet = ipaddress.ip_network(f"{first}/28")
        if not subnet.subnet_of(POOL):
            raise RuntimeError(f"PAIMON_HUB_POOL has no network for user {spawner.user.id}.")
        await spawner.docker(
            "create_network",
            name,
            driver="bridge",
            internal=True,
            ipam=IPAMConfig(pool_configs=[IPAMPool(subnet=str(subnet))]),
            # Not even this machine's own address is in it, from Docker 28 on.
            options={"com.docker.network.bridge.gateway_mode_ipv4": "isolated"},
        )
    there = (await spawner.docker("inspect_network", name))["Containers"].values()
    for container, alias in NEIGHBOURS.items():
        if container not in {one["Name"] for one in there}:
            await spawner.docker("connect_container_to_network", container, name, aliases=[alias])


async def clear(spawner):
    """Remove the network of a user whose server has ended."""
    name = f"paimon-user-{spawner.user.id}"
    for one in (await spawner.docker("inspect_network", name))["Containers"].values():
        await spawner.docker("disconnect_container_from_network", one["Name"], name, force=True)
    await spawner.docker("remove_network", name)


c.Spawner.pre_spawn_hook = prepare
c.Spawner.post_stop_hook = clear

load_subconfig(SITE)  # noqa: F821
