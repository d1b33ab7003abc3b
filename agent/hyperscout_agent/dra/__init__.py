"""The node plugin of the DRA driver whose NICs the collector publishes. It prepares nothing."""
