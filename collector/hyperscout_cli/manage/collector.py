"""`hyperscout collector`: the process that receives findings and publishes the hierarchy."""

from pathlib import Path
from typing import Any, NoReturn

import click
from hyperscout_collector.app.settings.settings import PREFIX, RETIRED, CollectorSettings, load_settings
from hyperscout_runtime.settings import SettingsError

from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.errors import BadInputError
from hyperscout_cli.shared.settings_flags import given, setting_flags


@click.command(
    cls=Command,
    epilog=f"""\b
Settings come from flags, then the environment ({PREFIX}LISTEN, ...), then --config.

\b
Examples:
  hyperscout collector --data-dir /tmp/hyperscout
  hyperscout collector --config /etc/hyperscout/collector.yaml
  hyperscout collector --kubeconfig ~/.kube/config --dry-run
  {PREFIX}LISTEN=[::1]:50051 hyperscout collector""",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print changes to the Kubernetes cluster, and write nothing to it. Sets --kubernetes dry-run, and "
    "overrides other settings.",
)
@setting_flags(CollectorSettings, RETIRED)
def collector(*, config: Path | None, dry_run: bool, **flags: Any) -> NoReturn:
    """Run the collector until SIGTERM or Ctrl-C."""
    if dry_run:
        asked = flags["kubernetes"]
        if asked not in (None, "dry-run"):
            raise click.UsageError(f"--dry-run and --kubernetes {asked}: give one of them")
        flags["kubernetes"] = "dry-run"
    try:
        settings = load_settings(config, given(flags))
    except SettingsError as error:
        raise BadInputError("; ".join(str(error).splitlines())) from error
    from hyperscout_collector.app.replica.process import run_process

    run_process(settings)
