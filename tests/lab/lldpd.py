"""The lldpd(8) of tests and of the lab: its configuration file, and what its lldpcli shows.

The configuration file alone configures an lldpd; only "show" commands are sent to it while it runs. lldpd
starts paused: its own lldpcli applies the file and then sends "resume". Each lldpcli command that changes
something ("configure", "update", "resume") reads the whole configuration, changes one value, and writes all
of it back, and "update" and "resume" take no lock. So a second lldpcli that reads before the resume and
writes after it pauses lldpd again: lldpd answers lldpcli and lists its ports, but it sends and hears nothing
any more. (lldpd 1.0.16: cmd_update and register_commands in src/client/lldpcli.c,
_lldpctl_atom_set_int_config in src/lib/atoms/config.c, client_handle_set_configuration in
src/daemon/client.c.)
"""

import json
import time
from collections.abc import Callable
from typing import Any

# Costs nothing when the condition comes early. A busy machine needs much of it.
WAIT_S = 240.0
_POLL_S = 0.05


class NotReadyError(RuntimeError):
    """A daemon does not reach the expected state in time. The message says what it shows instead."""


def configuration(hostname: str, tx_interval_s: int, tx_hold: int, *more: str) -> str:
    """The text of a configuration file. `more`: further lines."""
    return "\n".join(
        (
            f"configure system hostname {hostname}",
            f"configure lldp tx-interval {tx_interval_s}",
            f"configure lldp tx-hold {tx_hold}",
            *more,
            "",
        )
    )


def entries(shown: str) -> list[dict[str, Any]]:
    """The interfaces of a `-f json0` answer, [] for no answer. A neighbour is one entry of its interface."""
    if not shown.strip():
        return []
    lldp = json.loads(shown).get("lldp") or [{}]
    return list(lldp[0].get("interface", ()))


def by_port(shown: str) -> dict[str, Any]:
    """The same, by interface name. Of several neighbours on one interface the last one counts."""
    return {one["name"]: one for one in entries(shown)}


def wait_for(done: Callable[[], bool], is_alive: Callable[[], bool], trouble: Callable[[], str]) -> None:
    """Poll until `done`. Raises NotReadyError with `trouble` after WAIT_S, or when the daemon has ended."""
    give_up_s = time.monotonic() + WAIT_S
    while not done():
        if not is_alive() or time.monotonic() > give_up_s:
            raise NotReadyError(trouble())
        time.sleep(_POLL_S)
