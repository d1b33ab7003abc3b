"""What the placer works on: the forest of domains, free resources, requests and answers. Pure."""
