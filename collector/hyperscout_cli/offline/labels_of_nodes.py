"""Reads what labels of nodes say of their places and their NVLink domains, for `infer --node-labels`."""

from collections.abc import Sequence
from dataclasses import replace

import click
from hyperscout_formats.text import node_labels
from hyperscout_formats.text.errors import Problem
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.labels.cloud_labels import CLOUDS, Keys, domains_of, lists_of
from hyperscout_inference.labels.nvlink_labels import NVLINK_KEYS, labelled_gpus

from hyperscout_cli.shared.files import read_bytes, shown


def with_labels(
    label_keys: Sequence[str], inputs: FabricInputs, path: str, problems: list[Problem]
) -> FabricInputs:
    """Return the inputs with what the file says by own label keys, and by those of all known clouds.

    `label_keys`: a cloud, or keys with commas, the farthest first. Raises UsageError and FormatError.
    """
    own = _own_lists(label_keys)
    nodes, passed_over = node_labels.parse(read_bytes(path, "JSON"), shown(path))
    problems.extend(passed_over)
    there = {key for labels in nodes.values() for key in labels}
    clouds = [text for text in label_keys if text in CLOUDS and there.isdisjoint(CLOUDS[text])]
    unknown = [key for keys in own if keys not in CLOUDS.values() for key in keys if key not in there]
    absent = [*(f"a label of {cloud}, given" for cloud in clouds), *(f"the label {key}" for key in unknown)]
    problems.extend(Problem(shown(path), 0, f"no node has {what} in --label-keys") for what in absent)
    return replace(
        inputs,
        labels={**domains_of(nodes, (*own, *CLOUDS.values())), **inputs.labels},
        labelled_gpus={**labelled_gpus(nodes, NVLINK_KEYS), **inputs.labelled_gpus},
    )


def _own_lists(label_keys: Sequence[str]) -> Sequence[Keys]:
    wanted = [text if text in CLOUDS else list(map(str.strip, text.split(","))) for text in label_keys]
    try:
        lists = lists_of(wanted)
    except ValueError as error:
        raise click.UsageError(f"--label-keys: {error}") from error
    if plain := next((key for keys in lists for key in keys if "/" not in key), None):
        if plain in CLOUDS:
            raise click.UsageError(
                f"--label-keys: give the option once for {plain}, alone, and once for others"
            )
        raise click.UsageError(
            f"--label-keys: {plain!r}: expected a label key with a prefix, such as example.com/rack, or one "
            f"of {', '.join(CLOUDS)} alone; the option may be repeated"
        )
    return lists
