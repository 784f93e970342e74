"""Plans, as values: what a statement does, from its text and facts about the table. Pure."""
