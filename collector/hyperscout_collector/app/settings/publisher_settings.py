"""Settings of what the collector publishes: HyperNodes, facts about nodes, gates and files for Slurm."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

from hyperscout_formats.text.reporters import CLUSTER_FORM, is_cluster
from hyperscout_kubernetes.paths import NAME_FORM, is_name
from hyperscout_publish.nodes.label_keys import key_templates
from hyperscout_publish.nodes.node_features import is_denied
from hyperscout_publish.slurm.blocks import sizes_problem
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_validator, model_validator


def _object_name(text: str) -> str:
    if text and not is_name(text):
        raise ValueError(f"{text!r}: expected {NAME_FORM}")
    return text


def _namespaced_name(text: str) -> str:
    if text and not (text.count("/") == 1 and all(map(is_name, text.split("/")))):
        raise ValueError(f"{text!r}: expected NAMESPACE/NAME, two Kubernetes names")
    return text


def cluster_file(text: str) -> tuple[str, Path]:
    """Parse NAME=FILE into the name of a cluster and the path of its kubeconfig. Raises ValueError."""
    name, equals, file = text.partition("=")
    if not equals or not file:
        raise ValueError(f"{text!r}: expected NAME=FILE, where FILE is a kubeconfig of the cluster")
    if not is_cluster(name):
        raise ValueError(f"{text!r}: the name {name!r} of a cluster: expected {CLUSTER_FORM}")
    return name, Path(file)


def _word(value: object) -> object:
    """YAML 1.1 reads `on` and `off` without quotes as booleans."""
    return ("on" if value else "off") if isinstance(value, bool) else value


_LabelMode = Annotated[Literal["off", "dry-run", "on", "nfd"], BeforeValidator(_word)]
Mode = Annotated[Literal["off", "dry-run", "on"], BeforeValidator(_word)]
OnDegradation = Annotated[Literal["off", "advise", "move"], BeforeValidator(_word)]
ObjectName = Annotated[str, AfterValidator(_object_name)]  # of Kubernetes; may be empty
NamespacedName = Annotated[str, AfterValidator(_namespaced_name)]  # the same, as NAMESPACE/NAME


class PublisherSettings(BaseModel):
    """The settings of the publishers except MQTT; `CollectorSettings` inherits them."""

    publish_file: str | None = Field(
        None,
        description='write the HyperNodes as YAML to this file at each generation; "-" = standard output',
    )

    kubernetes: Annotated[Literal["off", "dry-run", "publish"], BeforeValidator(_word)] = Field(
        "off", description="publish HyperNodes in a Kubernetes cluster; dry-run prints the changes"
    )
    kubeconfig: Path | None = Field(
        None, description="kubeconfig file of the cluster (default: the service account of the pod)"
    )
    clusters: tuple[str, ...] = Field(
        (),
        description="other clusters on the same fabrics: NAME=FILE, where FILE is a kubeconfig of the "
        "cluster. Their nodes are called NAME/NODE, and each cluster gets the HyperNodes of its own nodes; "
        "with kubernetes: dry-run the changes are printed",
    )
    deployment: ObjectName = Field(
        "",
        description="name of the collector's own Deployment, in the namespace of the Lease, for Events about "
        'the collector; "" = none',
    )
    node_selector: str = Field(
        "!node-role.kubernetes.io/control-plane",
        description='label selector of the cluster\'s nodes in the hierarchy; "" = all nodes',
    )
    overlap: Literal["keep", "yield"] = Field(
        "keep",
        description="what happens to a published HyperNode and its node labels when a HyperNode of another "
        "owner contains its nodes: keep = they stay; yield = they are removed until the other one is gone",
    )
    node_labels: _LabelMode = Field(
        "off",
        description="label each node with its HyperNode of every tier; dry-run prints the changes, and nfd "
        "writes NodeFeatures, from which node-feature-discovery sets the labels",
    )
    node_label_keys: tuple[str, ...] = Field(
        (),
        description="further label keys for the tiers, with node_labels: KEY=TIER for one tier, such as "
        "example.com/rack=leaf, or a key for all tiers with {tier} in it, which counts from 1, or "
        "{fabric_tier}, which counts from 0 at the leaves",
    )
    single_host_domains: Literal["keep", "omit"] = Field(
        "keep",
        description="accelerator domains of one host, which are there so that all hosts have as many tiers. "
        "omit: node labels, Slurm files and answers of the placer do without them; HyperNodes keep them",
    )
    kueue_topology: ObjectName = Field(
        "", description='name of the Kueue Topology to maintain, with one level per tier; "" = none'
    )
    taints: Mode = Field(
        "off", description="taint nodes whose own links are degraded; dry-run prints the changes"
    )
    taint_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="maximum share of nodes that are tainted at once (one node always may be); lower it to "
        "keep more nodes for pods",
    )
    taint_after_s: float = Field(
        30.0,
        ge=0,
        description="a node is tainted when its links have been degraded for this long; raise it above the "
        "time that reseating a cable takes",
    )
    taint_clear_after_s: float = Field(
        300.0,
        ge=0,
        description="the taint is removed when no link has been degraded for this long; raise it if pods "
        "return to nodes whose links flap",
    )
    taint_uplink_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of degraded uplinks or switches of a tier-1 domain from which all its nodes are "
        "tainted; 0 = never. Raise it above 0 if pods need the bandwidth between domains",
    )
    node_conditions: Mode = Field(
        "off",
        description="set the conditions hyperscout.io/FabricReady and hyperscout.io/FabricDegraded of nodes, "
        "for systems that repair nodes; dry-run prints the changes",
    )
    node_conditions_domain_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="a HyperNode of which more than this share of nodes is bad gets an Event and the label "
        "hyperscout.io/many-nodes-bad; 1 = never. Lower it to hear of smaller faults",
    )
    dra: Mode = Field(
        "off",
        description="publish the NICs of nodes as ResourceSlices of the DRA driver nic.hyperscout.io; NICs "
        "that another driver publishes are left out; dry-run prints the changes",
    )
    dra_taints: Mode = Field(
        "off",
        description="taint NICs whose links are degraded with a DeviceTaintRule, instead of the whole node; "
        "the share and the times are those of taints; dry-run prints the changes",
    )
    gates: Mode = Field(
        "off",
        description="place gangs whose pods wait behind the scheduling gate hyperscout.io/topology; dry-run "
        "prints the placements",
    )
    gates_namespace: ObjectName = Field(
        "",
        description='namespace that holds the plans of gangs and nothing else; "" = that of the Lease',
    )
    gates_replace_after_s: float = Field(
        60.0,
        gt=0,
        description="a placed pod that the scheduler does not bind for this long is placed anew; raise it "
        "for a scheduler that takes longer, for example while the cluster adds nodes",
    )
    gates_hot_swap: bool = Field(
        True, description="move pods of a failed node near their gang; off = they wait for their node"
    )
    gates_pod_labels: bool = Field(
        False,
        description="label each pod whose gate opens with the leaf and the accelerator domain of its node, "
        "under hyperscout.io/leaf and hyperscout.io/nvlink (xgmi, ascend), as far as these tiers exist, for "
        "routers of requests",
    )
    gates_on_degradation: OnDegradation = Field(
        "off",
        description="what to do when the links of a running gang degrade: advise writes an Event with what "
        "to cordon, move also moves gangs whose pods have a checkpoint hook",
    )
    gates_degraded_wait_s: float = Field(
        300.0,
        ge=0,
        description="how long links stay degraded before the collector acts; raise it if links recover later",
    )
    gates_moves_per_hour: int = Field(
        4,
        ge=1,
        le=1000,
        description="maximum number of gangs that move within an hour; lower it if moves disturb the cluster",
    )
    gates_hook_timeout_s: float = Field(
        120.0,
        gt=0,
        le=3600,
        description="maximum wait for the checkpoint hooks of a gang; raise it if checkpoints take longer",
    )
    gates_drain_after_s: float = Field(
        600.0,
        ge=0,
        description="the first gang that waits for longer gets a domain that drains for it: nodes of it that "
        "become free are kept; 0 = never. Raise it if large gangs may wait longer, to lose less utilisation",
    )
    gates_defragment_every_s: float = Field(
        0.0,
        ge=0,
        description="interval between plans of which workers to move so that the first waiting gang fits; "
        "nothing moves; 0 = no plans. Raise it to save CPU: a plan takes up to some seconds of one core",
    )
    gates_defragment_most_moves: int = Field(
        64,
        ge=1,
        le=100_000,
        description="maximum number of workers that such a plan moves; lower it to what you would move",
    )
    slurm_tree_file: Path | None = Field(
        None, description="file of Slurm's topology.conf for topology/tree to maintain"
    )
    slurm_block_file: Path | None = Field(
        None, description="file of Slurm's topology.conf for topology/block to maintain"
    )
    slurm_yaml_file: Path | None = Field(
        None, description="file of Slurm's topology.yaml to maintain, with tree and blocks"
    )
    slurm_block_sizes: tuple[int, ...] = Field(
        (),
        description="block sizes of slurm_block_file, slurm_yaml_file and slinky_config_map, such as "
        "[18, 72]: the base size, then that times powers of two; empty = found in the fabric. Set them if "
        "hosts come and go, so that the sizes stay; slurm_block_file leaves out blocks below the base size",
    )
    slurm_hook: str = Field(
        "", description="command to run after a Slurm file changed (no shell), such as scontrol reconfigure"
    )
    slurm_live: str = Field(
        "",
        description="command that moves nodes in a running controller of Slurm 26.05 or newer, such as "
        "scontrol; slurm_hook then runs only for blocks, roots, moved switches, and many changes at once. "
        "Empty = slurm_hook runs for each change",
    )
    slurm_hook_interval_s: float = Field(
        60.0,
        ge=0,
        le=86_400,
        description="minimum time between two runs of slurm_hook; changes in between are written together at "
        "its end. Raise it if `scontrol reconfigure` occupies the controller of a large cluster",
    )

    slinky_config_map: NamespacedName = Field(
        "",
        description="ConfigMap of Slinky, as NAMESPACE/NAME, in which to maintain Slurm's topology.yaml, and "
        'with it the annotation topology.slinky.slurm.net/spec of nodes; "" = none',
    )

    @property
    def single_hosts(self) -> bool:
        """Whether node labels, Slurm and the placer have accelerator domains of one host."""
        return self.single_host_domains == "keep"

    @field_validator("clusters")
    @classmethod
    def _are_clusters(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [cluster_file(text)[0] for text in value]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{', '.join(twice)}: expected one kubeconfig for each cluster")
        return value

    @field_validator("slurm_block_sizes")
    @classmethod
    def _are_block_sizes(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if problem := sizes_problem(value):
            raise ValueError(problem)
        return value

    @field_validator("node_label_keys")
    @classmethod
    def _are_keys(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        key_templates(value)  # raises ValueError
        return value

    @field_validator("slurm_hook", "slurm_live")
    @classmethod
    def _is_command(cls, value: str) -> str:
        shlex.split(value)  # raises ValueError
        return value

    @property
    def kubeconfigs(self) -> dict[str, Path]:
        """The kubeconfig of each other cluster, by name."""
        return dict(map(cluster_file, self.clusters))

    @model_validator(mode="after")
    def _check_publishers(self) -> "PublisherSettings":
        of_any_cluster = {
            "node_labels": self.node_labels != "off",
            "taints": self.taints != "off",
            "node_conditions": self.node_conditions != "off",
            "kueue_topology": bool(self.kueue_topology),
            "slinky_config_map": bool(self.slinky_config_map),
            "dra": self.dra != "off",
            "dra_taints": self.dra_taints != "off",
        }
        if self.single_host_domains == "omit" and self.kueue_topology:
            raise ValueError(
                "single_host_domains: Kueue ignores nodes without the label of a level: set keep, or remove "
                "kueue_topology"
            )
        of_own_cluster = {"gates": self.gates != "off", "deployment": bool(self.deployment)}
        needs_kubernetes = of_own_cluster if self.clusters else of_any_cluster | of_own_cluster
        names = ", ".join(name for name, is_set in needs_kubernetes.items() if is_set)
        if names and self.kubernetes == "off":
            raise ValueError(f"{names}: set kubernetes too; while it is off, nothing is written to a cluster")
        if self.clusters and self.gates != "off":
            raise ValueError(
                "gates: they know the free resources of one cluster only: set gates: off, or remove clusters"
            )
        denied = [x.key for x in key_templates(self.node_label_keys) if is_denied(x.key)]
        if denied and self.node_labels == "nfd":
            raise ValueError(
                f"node_label_keys: node-feature-discovery sets no label {denied[0]}: remove this entry"
            )
        needs_gates = {
            "gates_on_degradation": self.gates_on_degradation != "off",
            "gates_defragment_every_s": self.gates_defragment_every_s > 0,
            "gates_pod_labels": self.gates_pod_labels,
        }
        names = ", ".join(name for name, is_set in needs_gates.items() if is_set)
        if names and self.gates == "off":
            raise ValueError(f"{names}: set gates too; only gangs behind gates are watched and planned for")
        files = [x for x in (self.slurm_tree_file, self.slurm_block_file, self.slurm_yaml_file) if x]
        if self.slurm_hook.strip() and not files:
            raise ValueError("slurm_hook: set slurm_tree_file, slurm_block_file or slurm_yaml_file too")
        if len(set(files)) < len(files):
            raise ValueError("slurm_tree_file, slurm_block_file, slurm_yaml_file: expected different files")
        if self.slurm_live.strip() and not (self.slurm_hook.strip() and len(files) == 1):
            raise ValueError("slurm_live: set slurm_hook and exactly one of Slurm's files too")
        return self
