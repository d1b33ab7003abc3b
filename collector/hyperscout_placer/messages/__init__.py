"""Requests and placements as protobuf messages and as JSON objects, and back. Pure."""
