"""Judges the values collected on a node: one pure function for each question, with the next step."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING

from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.text.counts import count, first_few

from hyperscout_agent.doctor.facts import (
    AgentSeen,
    Check,
    CollectorSeen,
    HostSeen,
    TokenSeen,
    WithoutData,
)
from hyperscout_agent.doctor.way_checks import certificates, clock, collector, token_file
from hyperscout_agent.lldp.neighbours import NO_CARRIER, NOTHING_HEARD, NOTHING_YET

if TYPE_CHECKING:  # the base install, without pydantic, runs the checks through the collector
    from hyperscout_agent.settings.settings import AgentSettings

_ROOT = 0
_MIN_FREE_BYTES = 1024 * 1024
_MAX_NAMED = 3
_TODO = {
    NOTHING_HEARD: "enable LLDP on the switch port, or disable the NIC's own LLDP agent",
    NO_CARRIER: "check the cable, or set the port up (ip link set PORT up)",
    NOTHING_YET: "run this check again in a minute: switches send LLDP every 30 s",
}
_NO_SWEEPS = "this node cannot sweep; another node of its fabric must"
_CHART_VALUE = "agent.infiniband.resourceName in the chart"
_POD = "in Kubernetes the chart sets this up"


def node_checks(
    settings: "AgentSettings",
    host: HostSeen,
    agent: AgentSeen,
    collectors: Sequence[CollectorSeen],
    token: TokenSeen | None,
    now_s: float,
) -> list[Check]:
    """Return all checks, in the order of their dependencies. `now_s`: this host's Unix time in seconds."""
    found = [
        agent_runs(agent, settings),
        *(agent_probe(name, agent) for name in sorted(agent.probes)),
        devices(host, settings),
        *infiniband(host, settings),
        *lldp(host, agent, settings),
        *gpus(host, settings),
        *programs(host, settings),
        disk(host, settings),
    ]
    if (shown := token_file(token, now_s)) is not None:
        found.append(shown)
    ways = [collector(seen, settings.reporter, agent) for seen in collectors]
    if any(way.verdict == "ok" for way in ways):  # the agent tries them in turn, so one is enough
        ways = [replace(way, verdict="warning") if way.verdict == "failed" else way for way in ways]
    return [*found, *ways, clock(collectors), *certificates(collectors, now_s)]


def agent_runs(agent: AgentSeen, settings: "AgentSettings") -> Check:
    """Check that an agent with this reporter name runs here and is connected to a collector."""
    if agent.trouble:
        return Check(
            "agent",
            "failed",
            f"no agent answers at {agent.address}: {agent.trouble}",
            "start the agent (`hyperscout agent`), or set its address (metrics.host, metrics.port)",
        )
    if agent.reporter != settings.reporter:
        return Check(
            "agent",
            "failed",
            f"the agent that runs here reports as {agent.reporter}, these settings say {settings.reporter}",
            "give the doctor the agent's own settings (--config, HYPERSCOUT_AGENT_NODE)",
        )
    if not agent.connected:
        return Check(
            "agent",
            "failed",
            f"the agent runs as {agent.reporter} and has no stream to a collector",
            "see `collector` below",
        )
    return Check("agent", "ok", f"the agent runs as {agent.reporter} and has a stream to a collector")


def agent_probe(name: str, agent: AgentSeen) -> Check:
    """Report the last run of one probe, with the reasons that the agent gives."""
    seen = agent.probes[name]
    counted = ", ".join(
        f"{number} {word}"
        for number, word in ((seen.data, "data"), (seen.nothing, "nothing"), (seen.failed, "failed"))
        if number
    )
    mine = [one for one in agent.without_data if one.probe == name]
    if seen.failed or seen.nothing:
        return of_probe(name, counted, mine, has_data=bool(seen.data))
    check = f"probe {name}"
    if seen.success is False:
        return Check(check, "failed", "its last run failed", "read the agent's log")
    if not seen.data:
        return Check(check, "skipped", "no findings: there is no such device, or no run was requested")
    return Check(check, "ok", counted)


def of_probe(name: str, counted: str, without_data: Sequence[WithoutData], *, has_data: bool) -> Check:
    """Judge a probe that has subjects without data. Each reason appears once, failures first."""
    subjects: dict[tuple[bool, str], list[str]] = {}
    for one in without_data:
        subjects.setdefault((one.outcome != "failed", one.reason), []).append(one.subject)
    reasons = [f"{_some(names)}: {reason}" for (_, reason), names in sorted(subjects.items())[:_MAX_NAMED]]
    why = f"{counted}: {'; '.join(reasons) or 'no reason given'}"
    failures = {reason for (is_nothing, reason) in subjects if not is_nothing}
    if failures - {NOTHING_YET}:
        return Check(f"probe {name}", "warning" if has_data else "failed", why, _todo(failures))
    return Check(
        f"probe {name}", "ok" if has_data else "warning", why, _todo({one.reason for one in without_data})
    )


def _todo(reasons: AbstractSet[str]) -> str:
    """Return the next step for a reason in `_TODO`, or "". Other reasons contain their next step."""
    return next((todo for reason, todo in _TODO.items() if reason in reasons), "")


def devices(host: HostSeen, settings: "AgentSettings") -> Check:
    """Check that this host has a port or GPU that can give evidence."""
    if settings.role == "fabric":
        return Check("devices", "skipped", "role fabric observes no device of this machine")
    up = [port.name for port in host.ports if port.carrier]
    active = [_name(port) for port in host.infiniband if port.state == "ACTIVE"]
    seen = (
        f"Ethernet ports with carrier: {_some(up)} of {len(host.ports)}; "
        f"InfiniBand and RoCE ports active: {_some(active)} of {len(host.infiniband)}; "
        f"NVIDIA GPUs: {host.gpus}"
    )
    if up or active or host.gpus:
        return Check("devices", "ok", seen)
    if host.ports or host.infiniband:
        return Check(
            "devices", "failed", f"no port has a link ({seen})", "plug in a cable, or set the port up"
        )
    return Check(
        "devices",
        "failed",
        "this host has no visible physical port, InfiniBand port or GPU",
        "run the agent in the host's network (hostNetwork: true), or name virtual ports in lldp.ports",
    )


def infiniband(host: HostSeen, settings: "AgentSettings") -> Iterator[Check]:
    """Check the InfiniBand port states and the device files that sweeps open."""
    if settings.role != "node":
        return
    ports = [port for port in host.infiniband if port.link_layer == "InfiniBand"]
    if not ports:
        yield Check("infiniband", "skipped", "this host has no InfiniBand port")
        return
    waiting = [_name(port) for port in ports if port.state in ("INIT", "ARMED")]
    down = [_name(port) for port in ports if port.state not in ("ACTIVE", "INIT", "ARMED")]
    if waiting:
        why = f"{_some(waiting)} has a link and waits for a subnet manager"
        yield Check("infiniband", "failed", why, "start a subnet manager (opensm, UFM) in that fabric")
    elif len(down) == len(ports):
        yield Check("infiniband", "failed", f"no port is active: {_some(down)} down", "check their cables")
    elif down:
        yield Check("infiniband", "warning", f"{_some(down)} of {len(ports)} down", "check their cables")
    else:
        yield Check("infiniband", "ok", f"{len(ports)} active")
    if not settings.ibnetdiscover.enabled:
        why = f"ibnetdiscover.enabled is false: {_NO_SWEEPS}; in Kubernetes, {_CHART_VALUE} turns sweeps on"
        yield Check("umad", "skipped", why)
    elif not host.umad:
        todo = f"load the module ib_umad; in Kubernetes, set {_CHART_VALUE}"
        yield Check("umad", "warning", f"this host has no /dev/infiniband/umad*: {_NO_SWEEPS}", todo)
    elif not any(device.usable for device in host.umad):
        todo = "run the agent in their group or as root; in a pod, set agent.infiniband.deviceGroup"
        why = f"user {host.user} may not open {host.umad[0].path}: {_NO_SWEEPS}"
        yield Check("umad", "warning", why, todo)
    else:
        yield Check(
            "umad", "ok", f"device files that can be opened: {sum(device.usable for device in host.umad)}"
        )


def lldp(host: HostSeen, agent: AgentSeen, settings: "AgentSettings") -> Iterator[Check]:
    """Check the source of LLDP neighbours and the permission to receive LLDP frames."""
    if settings.role == "fabric" or not settings.lldp.enabled:
        yield Check("lldp source", "skipped", "lldp is off")
        return
    source = settings.lldp.source
    if source == "lldpctl" or settings.role == "switch" or (source == "auto" and host.lldpd):
        if not host.lldpd and settings.lldp.lldpctl_command == ("lldpctl",):
            todo = "start lldpd, or set lldp.source: listener"
            yield Check(
                "lldp source", "failed", "the settings select lldpd, but its socket does not exist", todo
            )
        elif host.lldpctl_trouble:
            todo = "add this user to lldpd's group (_lldpd on Debian), or set lldp.source: listener"
            yield Check("lldp source", "failed", f"lldpd does not answer: {host.lldpctl_trouble}", todo)
        else:
            yield Check("lldp source", "ok", "lldpd runs and answers")
        return
    heard = agent.probes.get("lldp")
    if heard is not None and (heard.data or (heard.nothing and not heard.failed)):
        yield Check("lldp source", "ok", "the agent's listener receives LLDP frames")
    elif host.listener:
        yield Check("lldp source", "ok", f"an LLDP listener is connected to {settings.lldp.socket}")
    elif not settings.lldp.spawn_listener:
        yield _awaited_listener(host, settings)
    elif host.raw_socket:
        yield Check(
            "lldp source", "ok", f"no lldpd runs; user {host.user} may open raw sockets (CAP_NET_RAW)"
        )
    elif host.user == _ROOT:
        todo = f"give the agent the capability NET_RAW, or run `hyperscout agent lldp-listener`; {_POD}"
        yield Check(
            "lldp source",
            "failed",
            "no lldpd runs, and root lacks CAP_NET_RAW: LLDP frames are not received",
            todo,
        )
    else:
        todo = f"run `hyperscout agent lldp-listener` as root beside the agent, or install lldpd; {_POD}"
        why = f"no lldpd runs, and user {host.user} may not open raw sockets (CAP_NET_RAW)"
        yield Check("lldp source", "failed" if heard is None or heard.failed else "warning", why, todo)


def _awaited_listener(host: HostSeen, settings: "AgentSettings") -> Check:
    """Judge an agent that starts no listener, and waits for one: in a pod, that of the container `lldp`."""
    socket = settings.lldp.socket
    if host.listener is None:
        why = f"/proc/net/unix cannot be read: it shows whether an LLDP listener is connected to {socket}"
        return Check("lldp source", "warning", why, "see `probe lldp` above")
    todo = (
        f"run `hyperscout agent lldp-listener --socket {socket}` as root; in a pod, see "
        "`kubectl logs POD -c lldp`"
    )
    why = f"no LLDP listener is connected to {socket} (lldp.spawn_listener is off: the agent starts none)"
    return Check("lldp source", "failed", why, todo)


def gpus(host: HostSeen, settings: "AgentSettings") -> Iterator[Check]:
    if settings.role != "node" or not settings.nvlink.enabled:
        return
    if not host.gpus:
        yield Check("gpus", "skipped", "this host has no NVIDIA GPU")
    elif host.nvml_trouble:
        todo = "install the driver; in a pod, set agent.nvml.enabled (runtimeClassName: nvidia)"
        yield Check(
            "gpus", "failed", f"{count(host.gpus, 'GPU')}, but NVML cannot be used: {host.nvml_trouble}", todo
        )
    else:
        yield Check("gpus", "ok", f"{count(host.gpus, 'GPU')}, and NVML answers")


def programs(host: HostSeen, settings: "AgentSettings") -> Iterator[Check]:
    """Check for the external tools that the agent needs on this host."""
    if settings.role != "node":
        return
    fabric = any(port.link_layer == "InfiniBand" for port in host.infiniband)
    wanted = {
        "ibnetdiscover": fabric and settings.ibnetdiscover.enabled,
        "ibqueryerrors": fabric and settings.ibnetdiscover.enabled and settings.ibqueryerrors.enabled,
        "lldpctl": settings.lldp.enabled and (host.lldpd or settings.lldp.source == "lldpctl"),
        "ib_send_lat": bool(host.infiniband) and settings.latency.enabled,
    }
    for name, is_wanted in wanted.items():
        program = host.programs.get(name)
        if program is not None and program.path:
            yield Check(name, "ok", f"{program.path}, version {program.version or 'unknown'}")
        elif is_wanted and name == "ib_send_lat":
            yield Check(name, "skipped", "not found: round trips are measured over UDP only")
        elif is_wanted:
            package = "lldpd" if name == "lldpctl" else "infiniband-diags"
            why = "not found" if name == "lldpctl" else f"not found: {_NO_SWEEPS}"
            todo = f"install {package}, or set the command in the settings"
            yield Check(name, "failed" if name == "lldpctl" else "warning", why, todo)


def disk(host: HostSeen, settings: "AgentSettings") -> Check:
    """Check the folder of the listener's socket, the only folder that the agent writes to."""
    if settings.role != "node" or not settings.lldp.enabled or host.lldpd:
        return Check("disk", "skipped", "the agent writes no files")
    if host.free_bytes is None:
        if host.user == _ROOT:
            return Check("disk", "ok", f"{host.socket_folder} is created when the agent starts")
        todo = "create it for the agent's user, or set lldp.socket"
        return Check("disk", "warning", f"{host.socket_folder} does not exist", todo)
    if not host.socket_folder_writable:
        why = f"user {host.user} may not write to {host.socket_folder}: the listener cannot connect"
        return Check("disk", "warning", why, "make the agent's user its owner, or set lldp.socket")
    if host.free_bytes < _MIN_FREE_BYTES:
        return Check("disk", "failed", f"{host.socket_folder} is full", "free space there")
    return Check("disk", "ok", f"{host.socket_folder} can be written")


def _name(port: InfinibandPort) -> str:
    return f"{port.device}/{port.port}"


def _some(names: Sequence[str]) -> str:
    return first_few(names, _MAX_NAMED) or "none"
