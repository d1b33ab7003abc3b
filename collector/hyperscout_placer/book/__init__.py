"""Which gang holds which nodes, and what is free beside them."""
