"""The schema of a table as a value: its creation and changes, and the schemas that Paimon
refuses."""
