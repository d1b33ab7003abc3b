"""Facts that readers return, and their conversion to and from protobuf messages."""
