"""What clients reach: gRPC, REST, the live stream and the map."""
