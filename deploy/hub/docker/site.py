"""What is yours: how people log in, and what they may do."""

import os

c = get_config()  # noqa: F821

# One password for all, until your own authenticator is here: nobody else may reach the port before.
# For a company's issuer install oauthenticator in hub.Dockerfile, and write
#   c.JupyterHub.authenticator_class = "generic-oauth"
c.JupyterHub.authenticator_class = "shared-password"
c.SharedPasswordAuthenticator.user_password = os.environ["PAIMON_HUB_PASSWORD"]
c.Authenticator.allowed_users = {"alice", "bob", "carol"}

c.JupyterHub.load_groups = {
    "paimon-readers": {"users": ["carol"]},
    "paimon-writers": {"users": ["bob"]},
    "paimon-admins": {"users": ["alice"]},
}
