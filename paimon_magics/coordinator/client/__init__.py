"""How sessions reach a coordinator, in their own process or by HTTP."""
