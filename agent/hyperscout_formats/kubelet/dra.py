"""Names of the DRA driver for NICs, and of the services that the kubelet calls on a node plugin.

Source: kubernetes/kubelet, pkg/apis/pluginregistration/v1/api.proto and pkg/apis/dra/v1/api.proto.
"""

from typing import Final

DRIVER: Final = "nic.hyperscout.io"
PLUGIN_TYPE: Final = "DRAPlugin"
PLUGIN_VERSION: Final = "v1.DRAPlugin"  # of Kubernetes 1.34 and newer
REGISTRATION_SERVICE: Final = "pluginregistration.Registration"
PLUGIN_SERVICE: Final = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
