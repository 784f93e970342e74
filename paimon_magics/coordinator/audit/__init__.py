"""Who did what, when, from where: kept in the store first, then in a Paimon table."""
