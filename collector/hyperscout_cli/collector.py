"""`hyperscout collector`: the process that takes findings in and publishes the hierarchy."""

from pathlib import Path
from typing import Any

import click
from hyperscout_collector.settings import PREFIX, CollectorSettings, SettingsError, load_settings

from hyperscout_cli.errors import CliError
from hyperscout_cli.settings_flags import given, setting_flags


@click.command(
    epilog=f"""\b
Settings come from flags, then the environment ({PREFIX}LISTEN, ...), then --config.

\b
Examples:
  hyperscout collector --data-dir /tmp/hyperscout
  hyperscout collector --config /etc/hyperscout/collector.yaml
  {PREFIX}LISTEN=[::1]:50051 hyperscout collector"""
)
@setting_flags(CollectorSettings)
def collector(*, config: Path | None, **flags: Any) -> int:
    """Run the collector until it is told to stop (SIGTERM, Ctrl-C)."""
    try:
        settings = load_settings(config, given(flags))
    except SettingsError as error:
        raise CliError(str(error)) from error
    import asyncio

    from hyperscout_collector.process import run

    return asyncio.run(run(settings))
