"""The settings of the labels of nodes that the collector reads."""

from collections.abc import Sequence
from typing import Annotated

from hyperscout_inference.labels.cloud_labels import Keys, lists_of
from hyperscout_inference.labels.nvlink_labels import nvlink_keys
from hyperscout_publish.nodes.label_keys import key_templates
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field


class LabelSettings(BaseModel):
    """Which labels of nodes place hosts; `CollectorSettings` inherits it."""

    cloud_labels: Annotated[
        tuple[Keys, ...], BeforeValidator(lists_of, json_schema_input_type=list[str | list[str]])
    ] = Field(
        (),
        description="node labels that place hosts without visible links: clouds (aws, gcp, oci, oci-host, "
        "coreweave, kubernetes), or lists of label keys from the largest domain to the smallest",
    )
    nvlink_labels: Annotated[tuple[str, ...], AfterValidator(nvlink_keys)] = Field(
        (),
        description="node labels with the NVLink domain of hosts whose GPUs no agent and no manager reports, "
        "such as nvidia.com/gpu.clique; the first that names a domain counts",
    )


def label_problem(settings: LabelSettings, written: Sequence[str], *, reads_nodes: bool) -> str | None:
    """Return what is wrong with the labels that are read. `written`: the setting `node_label_keys`."""
    read = {
        "cloud_labels": [key for keys in settings.cloud_labels for key in keys],
        "nvlink_labels": settings.nvlink_labels,
    }
    ours = {key for template in key_templates(written) for key in template.possible_keys()}
    for name, keys in read.items():
        if keys and not reads_nodes:
            return f"{name}: set kubernetes too, which reads the labels of nodes"
        if both := ours.intersection(keys):
            return f"{name}: the collector writes {min(both)} (node_label_keys): remove it from one of them"
    return None
