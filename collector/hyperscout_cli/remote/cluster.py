"""Access to a Kubernetes cluster: --kubeconfig, its HyperNodes, and labels of its nodes."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from hyperscout_runtime.errors import install_extra

from hyperscout_cli.shared.errors import BadInputError, CliError

if TYPE_CHECKING:
    from hyperscout_kubernetes.errors import KubeError

F = TypeVar("F", bound=Callable[..., Any])


def kubeconfig_option(command: F) -> F:
    """--kubeconfig."""
    return click.option(
        "--kubeconfig",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Default: $KUBECONFIG, else ~/.kube/config, else the pod's service account.",
    )(command)


def default_kubeconfig() -> Path | None:
    """The file that kubectl uses; None = the pod's service account."""
    if named := os.environ.get("KUBECONFIG"):
        return Path(named)
    home = Path.home() / ".kube" / "config"
    return home if home.is_file() else None


def need_client(what: str) -> None:
    """Raises CliError where the Kubernetes client is not installed."""
    try:
        import hyperscout_kubernetes.client  # noqa: F401
        import kubernetes  # noqa: F401
    except ModuleNotFoundError as error:
        raise CliError(
            f"{what} needs the Python package {error.name!r}: {install_extra('collector')}"
        ) from error


def hypernodes_and_labels(kubeconfig: Path | None) -> tuple[list[dict[str, Any]], dict[str, dict[str, str]]]:
    """All HyperNodes of the API server, and the labels of each node by name. Raises CliError."""
    need_client("'diff --hypernodes cluster'")
    from hyperscout_kubernetes.client import connect
    from hyperscout_kubernetes.errors import KubeError, NotFoundError
    from hyperscout_kubernetes.nodes import PATH
    from hyperscout_publish.hypernodes.objects import COLLECTION

    async def ask() -> tuple[list[dict[str, Any]], dict[str, dict[str, str]]]:
        async with await connect(kubeconfig or default_kubeconfig()) as kube:
            hypernodes, _ = await kube.list(COLLECTION)
            nodes, _ = await kube.list(PATH)
            return hypernodes, {n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in nodes}

    try:
        return asyncio.run(ask())
    except NotFoundError as error:
        raise CliError(
            f"{error}; to install the HyperNode CRD: `hyperscout crd show | kubectl apply -f -`"
        ) from error
    except KubeError as error:
        raise cli_error(error) from error


def cli_error(error: "KubeError") -> CliError:
    """The error of a command, with the next step where it is the same for all commands."""
    from hyperscout_kubernetes.errors import KubeconfigError, UnreachableError

    if isinstance(error, KubeconfigError):
        return BadInputError(f"{error}: give --kubeconfig FILE")
    if isinstance(error, UnreachableError):
        return CliError(f"{error}: name a cluster that answers with --kubeconfig FILE")
    return CliError(str(error))
