"""Views of Outcomes as notebook widgets. Nothing is here yet: Outcomes show themselves as text."""
