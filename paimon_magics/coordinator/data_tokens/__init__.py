"""Short-lived keys to the warehouse's store, limited to what their holder may read and write."""
