"""`hyperscout crd`: the definition of HyperNodes, and its columns where somebody else owns it."""

import asyncio
import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hyperscout_cli.manage.crd_columns import NAME, VERSION, Plan, UnsuitableError, plan
from hyperscout_cli.remote.cluster import default_kubeconfig, kubeconfig_option, need_client
from hyperscout_cli.shared.command import Group
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.options import output_option
from hyperscout_cli.shared.output import emit, emit_data, emit_json, note

if TYPE_CHECKING:
    from hyperscout_kubernetes.client import Kube

_PATH = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}"
_JSON_PATCH = "application/json-patch+json"
_ATTEMPTS = 3


def text() -> str:
    """Our definition, as YAML."""
    return (resources.files("hyperscout_cli") / "hypernodes.yaml").read_text()


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  hyperscout crd show | kubectl apply --server-side -f -
  hyperscout crd columns""",
)
def crd() -> None:
    """The definition of HyperNodes in a cluster."""


@crd.command(epilog="\b\nExamples:\n  hyperscout crd show | kubectl apply --server-side -f -")
@output_option(words=("yaml", "json"), default="yaml")
def show(*, output: str) -> None:
    """Print the definition of HyperNodes, to apply where there is none."""
    if output == "yaml":
        emit([text()])
        return
    import yaml

    emit_json(yaml.safe_load(text()))


@crd.command(
    epilog="""\b
Run it as someone who may patch customresourcedefinitions. Whoever manages the definition may take the
columns away with its next upgrade; then run this again. It never does anything twice.

\b
Examples:
  hyperscout crd columns --dry-run
  hyperscout crd columns --kubeconfig admin.kubeconfig"""
)
@click.option("--dry-run", is_flag=True, help="Ask the server whether it would work; change nothing.")
@output_option()
@kubeconfig_option
def columns(*, dry_run: bool, output: str, kubeconfig: Path | None) -> None:
    """Add hyperscout's columns to a HyperNode definition that another product owns.

    NODES, READY, DEGRADED and REASON (more with `kubectl get hypernodes -o wide`). The schema and the columns
    that are there stay as they are.
    """
    need_client("'crd columns'")
    done, owner = asyncio.run(_columns(kubeconfig or default_kubeconfig(), dry_run=dry_run))
    _report(done, owner, output, dry_run=dry_run)


async def _columns(kubeconfig: Path | None, *, dry_run: bool) -> tuple[Plan, str]:
    from hyperscout_kubernetes.client import connect
    from hyperscout_kubernetes.errors import ForbiddenError, KubeError, NotFoundError

    try:
        async with await connect(kubeconfig) as kube:
            return await _add(kube, dry_run=dry_run)
    except NotFoundError as error:
        raise CliError(
            f"the cluster has no {NAME}: install the chart, or `hyperscout crd show | kubectl apply -f -`"
        ) from error
    except ForbiddenError as error:
        raise CliError(
            f"{error}: run it as someone who may get and patch customresourcedefinitions"
        ) from error
    except (KubeError, UnsuitableError) as error:
        raise CliError(str(error)) from error


async def _add(kube: "Kube", *, dry_run: bool) -> tuple[Plan, str]:
    """Plan and patch; look again when the definition changed meanwhile. Raises KubeError, CliError."""
    import yaml
    from hyperscout_kubernetes.errors import ConflictError, RejectedError

    ours: dict[str, Any] = yaml.safe_load(text())
    found = await kube.get(_PATH)
    for _ in range(_ATTEMPTS):
        planned = plan(found, ours)
        if not planned.patch:
            return planned, _owner(found)
        try:
            await kube.write(
                "PATCH",
                _PATH,
                [dict(step) for step in planned.patch],
                content=_JSON_PATCH,
                query={"fieldManager": "hyperscout-columns"} | ({"dryRun": "All"} if dry_run else {}),
            )
        except (ConflictError, RejectedError) as error:
            # A test that does not hold is answered like a patch that makes no sense: what tells them apart is
            # whether the definition is another one now.
            before, found = found, await kube.get(_PATH)
            same = before["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
            if same and isinstance(error, RejectedError):
                raise
        else:
            return planned, _owner(found)
    raise CliError(f"{NAME} changes faster than it can be patched: try again when nothing else writes it")


def _owner(found: Any) -> str:
    """Who manages the definition, as far as it says; "" when it does not."""
    metadata = found["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if release := annotations.get("meta.helm.sh/release-name"):
        return f"Helm release {annotations.get('meta.helm.sh/release-namespace', '')}/{release}"
    return str(labels.get("app.kubernetes.io/managed-by", ""))


def _report(done: Plan, owner: str, output: str, *, dry_run: bool) -> None:
    where = f"{NAME} {VERSION}"
    for name in done.kept:
        note(f"note: {where} has a column {name} that shows something else: left as it is")
    for name in done.left_out:
        note(f"note: column {name} left out: this {where} has no such field")
    if not done.has_status:
        note(f"warning: {where} has no status subresource: no condition can be written, columns stay empty")
    if output != "table":
        found = {"added": list(done.added), "kept": list(done.kept), "leftOut": list(done.left_out)}
        emit_data(found | {"patch": list(done.patch), "dryRun": dry_run, "owner": owner}, output)
        return
    if not done.added:
        emit([f"{where}: nothing to add, all columns are there\n"])
        return
    verb = "would add" if dry_run else "added"
    emit([f"{where}: {verb} {', '.join(done.added)}\n"])
    if dry_run:
        emit(json.dumps(step) + "\n" for step in done.patch)
    elif owner:
        note(f"note: managed by {owner}: its next upgrade may take the columns away; then run this again")
