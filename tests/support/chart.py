"""The Helm chart in tests: rendered and installed by the real helm, with one set of values a profile."""

import json
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

import yaml
from kube.assets import find

from support.kubernetes import Cluster
from support.real import ROOT
from support.waiting import TIMEOUT_S

CHART: Final = ROOT / "deploy" / "chart"
NAMESPACE: Final = "hyperscout"
RELEASE: Final = "hyperscout"
Object = dict[str, Any]

EVERYTHING: Final[Object] = {
    "commonLabels": {"team": "net"},
    "image": {"registry": "registry.example/infra/", "pullSecrets": [{"name": "pull"}]},
    "publish": {
        "nodeLabels": "nfd",
        "taints": "on",
        "nodeConditions": "on",
        "dra": "on",
        "draTaints": "on",
        "kueueTopology": "hyperscout",
        "slinkyConfigMap": "default/slurm-config-extra",
    },
    "gates": {"mode": "on", "admissionPolicy": True},
    "tls": {"extraNames": ["hyperscout.example"], "extraAddresses": ["192.0.2.7"]},
    "collector": {
        "replicas": 3,
        "settings": {"stale_after_s": 120, "node_selector": "role=gpu"},
        "blueprint": {"text": "# hall 1\nlinks:\n- gpu-1/eth0 -> leaf-1/p1\n"},
        "service": {
            "type": "LoadBalancer",
            "annotations": {"example.com/lb": "internal"},
            "nodePorts": {"grpc": 30051, "grpcMtls": 30054, "rest": 30080, "estimator": 30352},
        },
        "rest": {
            "ingress": {
                "enabled": True,
                "className": "nginx",
                "host": "map.example",
                "tlsSecret": "map-tls",
                "annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"},
            }
        },
        "mqtt": {
            "broker": "mqtts://broker.example",
            "topicPrefix": "hall-1/hyperscout",
            "user": "hyperscout",
            "passwordSecret": "mqtt-password",
            "caSecret": "mqtt-ca",
            "clientSecret": "mqtt-client",
            "devices": ["leaf-1=switch/leaf-1"],
        },
        "store": {
            "postgresql": {
                "url": "postgresql://hyperscout@db1.example:5433,db2.example/topology",
                "passwordSecret": "db-password",
                "caSecret": "db-ca",
                "clientSecret": "db-client",
            }
        },
        "mtls": {"enabled": True, "clientCaSecret": "switches-ca"},
        "estimator": {"enabled": True, "cluster": "member1"},
        "data": {"kind": "ephemeral", "storageClassName": "fast"},
        "priorityClassName": "system-cluster-critical",
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "extraVolumes": [{"name": "slurm", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "slurm", "mountPath": "/slurm"}],
    },
    "agent": {
        "settings": {
            "refresh_interval_s": 30,
            "lldp": {"ports": "^eth"},
            "infiniband": {"root": "/host/sys/class/infiniband"},
        },
        "collectorAddresses": ["192.0.2.7:50051", "hyperscout.example:50051"],
        "infiniband": {
            "resourceClaimTemplate": "rdma-all",
            "deviceGroup": 110,
        },
        "nvml": {"enabled": True},
        "metrics": {"expose": True},
        "priorityClassName": "system-node-critical",
        "extraVolumes": [{"name": "tools", "configMap": {"name": "tools"}}],
        "extraVolumeMounts": [{"name": "tools", "mountPath": "/opt/tools", "readOnly": True}],
        "extraEnv": [
            {"name": "LD_PRELOAD", "value": "/opt/tools/libumad2sim.so"},
            {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        ],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "runbookBase": "https://git.example/hyperscout",
    },
    "grafana": {"dashboards": {"enabled": True, "annotations": {"grafana_folder": "hyperscout"}}},
    "networkPolicy": {
        "enabled": True,
        "grpcFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "restFrom": [{"namespaceSelector": {"matchLabels": {"name": "people"}}}],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
    },
}
_SWITCHES: Final = "/etc/hyperscout/credentials/snmp"
FABRIC: Final[Object] = {
    "enabled": True,
    "credentials": {"snmp": "switches", "ufm": "ufm-login"},
    "settings": {
        "refresh_interval_s": 30,
        "snmp": {
            "access": [
                {"ranges": ["10.20.0.0/16"], "community_file": f"{_SWITCHES}/community"},
                {
                    "ranges": ["10.21.0.0/16", "2001:db8::/64"],
                    "user": "hyperscout",
                    "auth_password_file": f"{_SWITCHES}/auth",
                    "priv_password_file": f"{_SWITCHES}/priv",
                },
            ]
        },
    },
}
_CLAIM: Final[Object] = {"replicas": 1, "data": {"kind": "claim", "claimName": "evidence"}}
PROFILES: Final[dict[str, Object]] = {
    "default": {},
    "everything": EVERYTHING,
    "existing secret": {"tls": {"mode": "existingSecret", "secretName": "mine"}},
    "cert-manager": {"tls": {"mode": "certManager", "certManager": {"issuerRef": {"name": "ca"}}}},
    "insecure": {"tls": {"mode": "insecure"}, "authenticate": "none"},
    "no authentication": {"authenticate": "none", "collector": {"rest": {"hosts": ["map.example"]}}},
    "no map": {"collector": {"rest": {"enabled": False}}, "networkPolicy": {"enabled": True}},
    "dry run": {"publish": {"hyperNodes": "dry-run", "nodeLabels": "dry-run", "taints": "dry-run"}},
    "dry run of all": {
        "publish": {
            "hyperNodes": "dry-run",
            "nodeLabels": "on",
            "taints": "on",
            "kueueTopology": "x",
            "slinkyConfigMap": "default/x",
        }
    },
    "labels": {"publish": {"nodeLabels": "on"}},
    "conditions": {"publish": {"nodeConditions": "on"}},
    "gates tried": {"gates": {"mode": "dry-run"}},
    "several clusters": {
        "collector": {
            "clusters": [
                {"name": "east", "kubeconfigSecret": "hyperscout-east"},
                {"name": "west", "kubeconfigSecret": "hyperscout-west"},
            ]
        }
    },
    "agents of another cluster": {
        "tls": {"mode": "existingSecret"},
        "collector": {"replicas": 0},
        "agent": {"settings": {"cluster": "east"}, "collectorAddresses": ["collector.example:50051"]},
    },
    "one replica with a claim": {"collector": _CLAIM},
    "IPv6": {"ipFamily": "IPv6", "fabric": {**FABRIC, "credentials": {}}},
    "fabric": {
        "fabric": FABRIC,
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "networkPolicy": {"enabled": True},
    },
    "fabric without authentication": {"fabric": FABRIC, "authenticate": "none"},
    "InfiniBand by a device plugin": {"agent": {"infiniband": {"resourceName": "rdma/hca_shared"}}},
    "InfiniBand by a claim": {"agent": {"infiniband": {"resourceClaimTemplate": "rdma-all"}}},
    "devices of the kubelet": {
        "agent": {"podResources": {"enabled": True, "kubeletFolder": "/data/kubelet"}}
    },
    "devices of DRA": {
        "publish": {"dra": "on"},
        "agent": {"dra": {"enabled": True, "kubeletFolder": "/data/kubelet"}},
    },
    "no LLDP": {"agent": {"lldp": {"enabled": False}}},
    "others' accounts": {
        "collector": {"serviceAccount": {"create": False, "name": "one"}},
        "agent": {"serviceAccount": {"create": False, "name": "two"}},
    },
}

# Definitions of others that the chart may write objects of: bare ones, which take anything.
_OTHERS: Final = (
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors", "Namespaced"),
    ("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors", "Namespaced"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules", "Namespaced"),
    ("cert-manager.io", "v1", "Certificate", "certificates", "Namespaced"),
    ("kueue.x-k8s.io", "v1beta1", "Topology", "topologies", "Cluster"),
    ("kueue.x-k8s.io", "v1beta1", "ResourceFlavor", "resourceflavors", "Cluster"),
    ("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature", "nodefeatures", "Namespaced"),
)


def helm_template(values: Object, *options: str) -> subprocess.CompletedProcess[str]:
    """`helm template`, however it ends."""
    command = [str(find("helm")), "template", RELEASE, str(CHART), "--namespace", NAMESPACE]
    command += ["--kube-version", "1.36.0", "--values", "-", *options]
    return subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@cache
def _rendered(values: str) -> str:
    done = helm_template(json.loads(values))
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(values: Object) -> list[Object]:
    """The objects of the chart with these values."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, if libyaml is installed
    return [found for found in yaml.load_all(_rendered(json.dumps(values)), loader) if found]


def one(objects: Iterable[Object], kind: str, name: str = "") -> Object:
    """The one object of a kind, or the one whose name ends so."""
    found = [o for o in objects if o["kind"] == kind and o["metadata"]["name"].endswith(name)]
    assert len(found) == 1, [o["metadata"]["name"] for o in found]
    return found[0]


def install(kube: Cluster, values: Object, *options: str, verb: str = "install") -> str:
    """`helm install` of the chart into its namespace; returns what it said."""
    words = [verb, RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace", "--values", "-"]
    return kube.helm(*words, *options, stdin=json.dumps(values))


def define_others(kube: Cluster, others: Sequence[tuple[str, str, str, str, str]] = _OTHERS) -> None:
    """The definitions that other products would bring: group, version, kind, plural and scope of each."""
    for group, version, kind, plural, scope in others:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        kube.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{group}"},
                "spec": {
                    "group": group,
                    "names": {"kind": kind, "plural": plural, "listKind": f"{kind}List"},
                    "scope": scope,
                    "versions": [
                        {
                            "name": version,
                            "served": True,
                            "storage": True,
                            "schema": {"openAPIV3Schema": schema},
                        }
                    ],
                },
            }
        )
    kube.kubectl("wait", "--for=condition=Established", "--timeout=120s", "crd", "--all")
