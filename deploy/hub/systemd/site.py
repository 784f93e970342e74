"""What is yours: how people log in, and what they may do."""

c = get_config()  # noqa: F821

# Log in with accounts of this machine (PAM). Whoever logs in works under an account of the hub's
# own, paimon-NAME, without a shell. For a company's issuer install oauthenticator, and write
#   c.JupyterHub.authenticator_class = "generic-oauth"
c.JupyterHub.authenticator_class = "pam"
c.Authenticator.allowed_users = {"alice", "bob", "carol"}

c.JupyterHub.load_groups = {
    "paimon-readers": {"users": ["carol"]},
    "paimon-writers": {"users": ["bob"]},
    "paimon-admins": {"users": ["alice"]},
}
