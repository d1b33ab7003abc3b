"""Options that commands share: the collector and its credentials, a saved topology, the output format."""

import functools
import os
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from hyperscout_formats.text.host_list import MAX_NAMES, HostListError, expand
from hyperscout_runtime.connections import GRPC_PORT

from hyperscout_cli.shared.output import COLOR
from hyperscout_cli.shared.times import Duration

if TYPE_CHECKING:
    from hyperscout_runtime.credentials import Credentials

Command = Callable[..., Any]

DEFAULT_COLLECTOR = f"127.0.0.1:{GRPC_PORT}"
DEFAULT_NAMESPACE = "hyperscout"
COLLECTOR_VARIABLE = "HYPERSCOUT_COLLECTOR"
_CHECK_TIMEOUT_S = 10.0  # of the first question to an existing collector
TOKEN_VARIABLE = "HYPERSCOUT_TOKEN"  # noqa: S105 - its name; never a flag, which every process could read
FORMATS = ("table", "wide", "json", "yaml", "name", "dot", "netbox-csv", "hostlist")
_ALIASES = {"text": "table"}  # an earlier name


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The collector to query, and the credentials for it."""

    address: str
    timeout_s: float
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_server_name: str = ""
    token_file: Path | None = None
    insecure: bool = False
    namespace: str = ""  # kubectl forwards a port to the collector in this namespace; "" = use `address`
    token: str = field(default="", repr=False)

    @property
    def credentials(self) -> "Credentials":
        """Credentials as the agent uses them. Raises UsageError for flags that contradict each other."""
        from hyperscout_runtime.credentials import Credentials, TargetError, check_target

        if (self.tls_cert is None) != (self.tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key: give both or neither")
        if self.tls_ca is None and (self.tls_cert is not None or self.tls_server_name):
            raise click.UsageError("--tls-cert and --tls-server-name need --tls-ca: give it too")
        try:
            check_target(
                self.address,
                insecure=self.insecure,
                tls=self.tls_ca is not None,
                token=bool(self.token) or self.token_file is not None,
            )
        except TargetError as error:
            words = str(error).replace("(tls_ca)", "(--tls-ca)").replace("set `insecure: true`", "--insecure")
            raise click.UsageError(words) from error
        return Credentials(
            self.tls_ca, self.tls_cert, self.tls_key, self.tls_server_name, self.token_file, self.insecure
        )


def _shown(flag: str, text: str, **more: Any) -> Callable[[Command], Command]:
    """An option about credentials, with an environment variable HYPERSCOUT_..."""
    return click.option(flag, envvar=f"HYPERSCOUT_{flag[2:].upper().replace('-', '_')}", help=text, **more)


_FILE: dict[str, Any] = {"metavar": "FILE", "type": click.Path(path_type=Path)}
_TLS = (
    _shown("--tls-ca", "Use TLS; FILE has CA certificates (PEM) for the collector's.", **_FILE),
    _shown("--tls-cert", "Client certificate (PEM), for a port that requires one.", **_FILE),
    _shown("--tls-key", "Private key (PEM) of --tls-cert.", **_FILE),
    _shown(
        "--tls-server-name", "Name in the collector's certificate, if not ADDR.", metavar="NAME", default=""
    ),
)
_TOKEN = _shown("--token-file", f"File with a token; or put the token into {TOKEN_VARIABLE}.", **_FILE)
_INSECURE = _shown("--insecure", "Allow plaintext to another machine; never with a token.", is_flag=True)


def collector_options(command: Command) -> Command:
    """--collector, --timeout and credentials; the command gets all of them as one `Endpoint`."""

    @functools.wraps(command)
    def with_endpoint(*args: Any, collector: str, namespace: str, timeout_s: float, **more: Any) -> Any:
        names = ("tls_ca", "tls_cert", "tls_key", "tls_server_name", "token_file", "insecure")
        shown = {name: more.pop(name) for name in names}
        token = "" if shown["token_file"] is not None else os.environ.get(TOKEN_VARIABLE, "").strip()
        context = click.get_current_context()
        if more.get("topology") is not None and _is_given(context):
            raise click.UsageError("--topology and --collector: give one of them")
        shown["namespace"] = reached_in(context, namespace)
        address = DEFAULT_COLLECTOR if shown["namespace"] else collector
        return command(*args, collector=Endpoint(address, timeout_s, token=token, **shown), **more)

    found: Command = with_endpoint
    for option in reversed((*_TLS, _TOKEN, _INSECURE)):
        found = option(found)
    return _where(found)


def existing_collector_options(command: Command) -> Command:
    """--collector and TLS, for a command that otherwise starts a collector of its own.

    The command gets `collectors`, one `Endpoint` for each address. The environment names no collector here:
    it may be a real one.
    """
    names = ("tls_ca", "tls_cert", "tls_key", "tls_server_name", "insecure")

    @functools.wraps(command)
    def with_endpoint(*args: Any, collector: str | None, **more: Any) -> Any:
        shown = {name: more.pop(name) for name in names}
        given = collector or click.get_current_context().find_root().params.get("collector") or ""
        addresses = [address for part in given.split(",") if (address := part.strip())]
        endpoints = [Endpoint(address, _CHECK_TIMEOUT_S, **shown) for address in addresses]
        return command(*args, collectors=endpoints, **more)

    found: Command = with_endpoint
    for option in reversed((*_TLS, _INSECURE)):
        found = option(found)
    return click.option(
        "--collector",
        metavar="ADDR,...",
        help="Use the collector at host:port, or its replicas, in place of a new one. It must have no other "
        "agents.",
    )(found)


def _is_given(context: click.Context) -> bool:
    """Whether the command line, not only the environment, names a collector."""
    is_own = context.get_parameter_source("collector") is ParameterSource.COMMANDLINE
    return is_own or bool(context.find_root().params.get("collector"))


def reached_in(context: click.Context, namespace: str) -> str:
    """The namespace to forward a port to; "" to use an address. Raises UsageError if both are given.

    `kubectl hyperscout` forwards a port unless an address is given.
    """
    source, root = context.get_parameter_source("collector"), context.find_root()
    if _is_given(context):
        if namespace and context.get_parameter_source("namespace") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--collector and --namespace: give one of them")
        return ""
    if not namespace and source is ParameterSource.DEFAULT and (root.info_name or "").startswith("kubectl"):
        return DEFAULT_NAMESPACE
    return namespace


def _where(command: Command) -> Command:
    """--collector, --namespace and --timeout."""
    command = click.option(
        "--namespace",
        metavar="NAME",
        envvar="HYPERSCOUT_NAMESPACE",
        default="",
        help="Use `kubectl port-forward` to the collector in this namespace, in place of --collector. "
        f"Default of `kubectl hyperscout`: {DEFAULT_NAMESPACE}.",
    )(command)
    command = click.option(
        "--timeout",
        "timeout_s",
        type=Duration(0.001, 3600),
        default="10s",
        show_default=True,
        help="Time limit for an answer (500 ms is 0.5s).",
    )(command)
    return click.option(
        "--collector",
        metavar="ADDR",
        envvar=COLLECTOR_VARIABLE,
        default=DEFAULT_COLLECTOR,
        show_default=True,
        callback=_or_of_group,
        help="The collector's host:port.",
    )(command)


def _or_of_group(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Make `hyperscout --collector ADDR get` equal to `hyperscout get --collector ADDR`."""
    of_group = ctx.find_root().params.get("collector")
    if of_group and ctx.get_parameter_source("collector") is not ParameterSource.COMMANDLINE:
        return str(of_group)
    return value


def topology_options(command: Command) -> Command:
    """The options of the collector, and --topology in place of them."""
    command = click.option(
        "--topology",
        metavar="FILE",
        type=click.Path(),
        help="Read a saved topology (`infer -o json`, `tree -o json`) and query no collector.",
    )(command)
    return collector_options(command)


def cluster_option(command: Command) -> Command:
    """The option --cluster."""
    return click.option(
        "--cluster",
        metavar="NAME",
        help='Show what this cluster gets: the tree of its own nodes; "" = the collector\'s own cluster.',
    )(command)


class Output(click.Choice):  # type: ignore[type-arg]  # no generic before click 8.2
    """The values of -o. Aliases are accepted and not listed."""

    def __init__(self, words: Sequence[str], aliases: Mapping[str, str]) -> None:
        super().__init__(words)
        self._aliases = aliases

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found: str = super().convert(self._aliases.get(value, value), param, ctx)
        return found


def output_option(
    *more: str, words: Sequence[str] = (), default: str = "table"
) -> Callable[[Command], Command]:
    """-o with table, json, yaml and `more` of FORMATS, and --color.

    `words` replaces the values; then `table` is an alias of the default, so that it works with every command.
    """
    known = words or [word for word in FORMATS if word in {"table", "json", "yaml", *more}]
    aliases = _ALIASES if not words else {"table": default, "text": default}
    readers = f"{default} is for people; " if default in {"table", "tree"} else ""

    def decorate(command: Command) -> Command:
        command = click.option(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            default=None,
            show_default="auto",
            expose_value=False,
            callback=_keep_color,
            help="Use colours; auto: on a terminal, unless NO_COLOR is set.",
        )(command)
        return click.option(
            "-o",
            "--output",
            type=Output(known, aliases),
            default=default,
            show_default=True,
            help=f"{readers}json and yaml print the same object.",
        )(command)

    return decorate


def _keep_color(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[COLOR] = value


def names_in(texts: Iterable[str], known: Container[str] = frozenset()) -> list[str]:
    """All names, without duplicates. A text in `known` is one name and is not expanded. Raises UsageError."""
    found: dict[str, None] = {}
    for text in texts:
        try:
            found.update(dict.fromkeys([text] if text in known else expand(text)))
        except HostListError as error:
            raise click.UsageError(str(error)) from error
        if len(found) > MAX_NAMES:
            raise click.UsageError(f"more than {MAX_NAMES} names: give fewer")
    return list(found)


def with_prefixes(names: Iterable[str], known: Collection[str]) -> list[str]:
    """The names, each `PREFIX*` replaced by the known names that begin so; it stays if there are none."""
    found: dict[str, None] = {}
    for name in names:
        begun = []
        if name.endswith("*") and name not in known:
            begun = [other for other in known if other.startswith(name[:-1])]
        found.update(dict.fromkeys(begun or [name]))
    return list(found)


def expanded(ctx: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> tuple[str, ...]:
    """The callback of an option or argument with names of nodes. It keeps duplicates."""
    found: list[str] = []
    for text in texts:
        try:
            found += expand(text)
        except HostListError as error:
            raise click.BadParameter(str(error), ctx, parameter) from error
        if len(found) > MAX_NAMES:
            raise click.BadParameter(f"more than {MAX_NAMES} names: give fewer", ctx, parameter)
    return tuple(found)
