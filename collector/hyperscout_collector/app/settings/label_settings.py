"""The settings of the labels of nodes that the collector reads."""

from collections.abc import Sequence
from typing import Annotated

from hyperscout_inference.labels.cloud_labels import Keys, lists_of
from hyperscout_publish.nodes.label_keys import key_templates
from pydantic import BaseModel, BeforeValidator, Field


class LabelSettings(BaseModel):
    """Which labels of nodes place hosts; `CollectorSettings` inherits it."""

    cloud_labels: Annotated[
        tuple[Keys, ...], BeforeValidator(lists_of, json_schema_input_type=list[str | list[str]])
    ] = Field(
        (),
        description="node labels that place hosts without visible links: clouds (aws, gcp, oci, coreweave, "
        "kubernetes), or lists of label keys from the largest domain to the smallest",
    )


def label_problem(settings: LabelSettings, written: Sequence[str], *, reads_nodes: bool) -> str | None:
    """Return what is wrong with the labels that are read. `written`: the setting `node_label_keys`."""
    if settings.cloud_labels and not reads_nodes:
        return "cloud_labels: set kubernetes too, which reads the labels of nodes"
    ours = {key for template in key_templates(written) for key in template.possible_keys()}
    if both := ours.intersection(key for keys in settings.cloud_labels for key in keys):
        return f"cloud_labels: node_label_keys writes {min(both)}, which is not read back: remove one"
    return None
