"""The options of a Paimon table: keys, types, values, and what each is for."""
