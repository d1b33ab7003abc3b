"""`hyperscout crd`: prints the HyperNode definition, or adds columns to one that another product owns."""

import asyncio
import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from hyperscout_kubernetes.paths import api_path

from hyperscout_cli.manage.crd_columns import NAME, VERSION, ColumnPlan, UnsuitableError, plan
from hyperscout_cli.remote.cluster import cli_error, default_kubeconfig, kubeconfig_option, need_client
from hyperscout_cli.shared.command import Group
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.options import output_option
from hyperscout_cli.shared.output import emit, emit_data, note

if TYPE_CHECKING:
    from hyperscout_kubernetes.client import Kube

_PATH = api_path("apiextensions.k8s.io/v1", "customresourcedefinitions", NAME)
_JSON_PATCH = "application/json-patch+json"
_ATTEMPTS = 3


def text() -> str:
    """hyperscout's definition as YAML."""
    return (resources.files("hyperscout_cli") / "hypernodes.yaml").read_text()


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  hyperscout crd show | kubectl apply --server-side -f -
  hyperscout crd columns""",
)
def crd() -> None:
    """Print the definition of HyperNodes, or add columns to the one in a cluster."""


@crd.command(epilog="\b\nExamples:\n  hyperscout crd show | kubectl apply --server-side -f -")
@output_option(words=("yaml", "json"), default="yaml")
def show(*, output: str) -> None:
    """Print the definition of HyperNodes, for clusters without one."""
    if output == "yaml":
        emit([text()])
        return
    import yaml

    emit_data(yaml.safe_load(text()), output)


@crd.command(
    epilog="""\b
This command needs the right to patch customresourcedefinitions. An upgrade of the product that owns the
definition may remove the columns; then run this command again. It adds no column twice.

\b
Examples:
  hyperscout crd columns --dry-run
  hyperscout crd columns --kubeconfig admin.kubeconfig"""
)
@click.option("--dry-run", is_flag=True, help="Let the server check the change, and change nothing.")
@output_option()
@kubeconfig_option
def columns(*, dry_run: bool, output: str, kubeconfig: Path | None) -> None:
    """Add hyperscout's columns to a HyperNode definition that another product owns.

    Adds NODES, READY, DEGRADED and REASON (more with `kubectl get hypernodes -o wide`). The schema and
    existing columns stay unchanged.
    """
    need_client("'crd columns'")
    done, owner = asyncio.run(_columns(kubeconfig or default_kubeconfig(), dry_run=dry_run))
    _report(done, owner, output, dry_run=dry_run)


async def _columns(kubeconfig: Path | None, *, dry_run: bool) -> tuple[ColumnPlan, str]:
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
        raise CliError(f"{error}: use an account that may get and patch customresourcedefinitions") from error
    except KubeError as error:
        raise cli_error(error) from error
    except UnsuitableError as error:
        raise CliError(str(error)) from error


async def _add(kube: "Kube", *, dry_run: bool) -> tuple[ColumnPlan, str]:
    """Compute and send the patch; retry if the definition changed meanwhile. Raises KubeError, CliError."""
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
            # The server rejects a failed test and an invalid patch alike. It was a failed test if the
            # definition has changed.
            before, found = found, await kube.get(_PATH)
            same = before["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
            if same and isinstance(error, RejectedError):
                raise
        else:
            return planned, _owner(found)
    raise CliError(f"{NAME} changed during each of {_ATTEMPTS} attempts: try again later")


def _owner(found: Any) -> str:
    """The product that manages the definition; "" if the definition does not name it."""
    metadata = found["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if release := annotations.get("meta.helm.sh/release-name"):
        return f"Helm release {annotations.get('meta.helm.sh/release-namespace', '')}/{release}"
    return str(labels.get("app.kubernetes.io/managed-by", ""))


def _report(done: ColumnPlan, owner: str, output: str, *, dry_run: bool) -> None:
    where = f"{NAME} {VERSION}"
    for name in done.kept:
        note(f"note: {where} has another column named {name}, which stays unchanged")
    for name in done.left_out:
        note(f"note: column {name} is left out: this {where} does not have its field")
    if not done.has_status:
        note(f"warning: {where} has no status subresource: conditions cannot be written, columns stay empty")
    if output != "table":
        found = {"added": list(done.added), "kept": list(done.kept), "leftOut": list(done.left_out)}
        emit_data(found | {"patch": list(done.patch), "dryRun": dry_run, "owner": owner}, output)
        return
    if not done.added:
        emit([f"{where}: nothing to add, all columns exist\n"])
        return
    verb = "would add" if dry_run else "added"
    emit([f"{where}: {verb} {', '.join(done.added)}\n"])
    if dry_run:
        emit(json.dumps(step) + "\n" for step in done.patch)
    elif owner:
        note(f"note: managed by {owner}: its next upgrade may remove the columns; then run this again")
