"""Reader of the answers of the kubelet's PodResources API."""
