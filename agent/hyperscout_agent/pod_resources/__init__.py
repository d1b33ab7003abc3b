"""Passes the agent's requests on to the kubelet's PodResources API, whose socket is for root."""
