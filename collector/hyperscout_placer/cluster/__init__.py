"""The data that the placer works on: domains, free resources, requests and answers. Pure."""
