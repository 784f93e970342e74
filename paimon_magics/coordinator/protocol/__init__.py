"""What clients and coordinator send each other."""
