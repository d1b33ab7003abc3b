"""Labels by which a cloud says where its machines are, and the tiers that follow from them."""
