"""Judges the connection to the collectors: token, each stage up to Hello, clock, certificates. Pure."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from hyperscout_agent.doctor.facts import AgentSeen, Check, CollectorSeen, TokenSeen

CLOCK_WARNING_S = 2.0
CLOCK_FAILED_S = 300.0  # the clock decides whether tokens and certificates are valid; a token lasts an hour
_SOON_S = 7 * 86_400


def token_file(token: TokenSeen | None, now_s: float) -> Check | None:
    if token is None:
        return None
    if token.trouble:
        return Check("token", "failed", f"{token.path}: {token.trouble}", "see token_file in the settings")
    if token.expires_s is None:
        return Check("token", "ok", f"{token.path} does not say when it expires")
    if token.expires_s <= now_s:
        todo = "have it renewed: a projected token is, by the kubelet; see whether that runs and clocks agree"
        return Check("token", "failed", f"{token.path} expired at {_at(token.expires_s)}", todo)
    return Check("token", "ok", f"{token.path} holds until {_at(token.expires_s)}")


def collector(seen: CollectorSeen, reporter: str, agent: AgentSeen) -> Check:
    """Judge the stage that was reached with one collector."""
    name = f"collector {seen.target}"
    match seen.stage:
        case "greeted" if seen.code:
            if agent.trouble or agent.reporter != reporter:
                todo = "see where: `hyperscout get nodes`; each node needs a name of its own"
                why = f"it takes our credentials, but another agent reports as {reporter} to it"
                return Check(name, "warning", why, todo)
            return Check(name, "ok", f"it takes our credentials, and has the stream of {reporter}")
        case "greeted":
            return Check(
                name, "ok", f"it takes our credentials and greets {reporter}; version {seen.version}"
            )
        case "settings":
            return Check(name, "failed", seen.detail, "put it right in the agent's settings")
        case "name":
            why = f"the name is not found: {seen.detail}"
            return Check(name, "failed", why, "see collectors in the settings, and this host's DNS")
        case "connect":
            todo = "see whether the collector runs, and whether a firewall or a network policy is in the way"
            return Check(name, "failed", f"no connection: {seen.detail}", todo)
        case "tls":
            todo = "see tls_ca and tls_server_name in the settings, and the collector's certificate"
            return Check(name, "failed", seen.detail, todo)
        case "standby":
            return Check(
                name, "failed", f"it stands by: {seen.detail}", "see the collectors' logs and their Lease"
            )
        case "identity":
            return Check(name, "failed", *_refused(seen, reporter))


def _refused(seen: CollectorSeen, reporter: str) -> tuple[str, str]:
    """Return why the collector rejected the Hello, and the next step."""
    said = seen.detail or seen.code
    todo = {
        "UNAUTHENTICATED": "show a fresh token for its audience (token_file), or a certificate it trusts",
        "PERMISSION_DENIED": f"its credentials must be those of {reporter}: see node and role in settings",
        "RESOURCE_EXHAUSTED": "it is full: see max_streams of the collector",
        "UNAVAILABLE": "if it speaks TLS, set tls_ca; if it demands a certificate, tls_cert and tls_key",
        "UNIMPLEMENTED": "what listens there is no collector: see collectors in the settings",
    }.get(seen.code, "see the collector's log")
    return f"it does not take our Hello: {said}", todo


def clock(collectors: Sequence[CollectorSeen]) -> Check:
    """Compare this host's clock with the collectors' clocks. The largest offset decides."""
    told = [seen for seen in collectors if seen.clock_offset_s is not None]
    if not told:
        return Check("clock", "skipped", "no collector told its time")

    def off_s(seen: CollectorSeen) -> float:
        return max(0.0, abs(seen.clock_offset_s or 0.0) - seen.uncertain_s)

    worst = max(told, key=off_s)
    offset_s = worst.clock_offset_s or 0.0
    why = f"{abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} {worst.target}"
    todo = "see to time synchronisation (chrony, systemd-timesyncd) on both"
    if off_s(worst) >= CLOCK_FAILED_S:
        return Check("clock", "failed", f"{why}: tokens and certificates are judged by it", todo)
    if off_s(worst) >= CLOCK_WARNING_S:
        return Check("clock", "warning", f"{why}; ages of findings come out right all the same", todo)
    return Check("clock", "ok", f"within {max(abs(offset_s), worst.uncertain_s):.2f} s of {worst.target}")


def certificates(collectors: Sequence[CollectorSeen], now_s: float) -> Iterator[Check]:
    """Warn about collector certificates that expire within 7 days."""
    for seen in collectors:
        until_s = seen.certificate_until_s
        if until_s is not None and until_s - now_s < _SOON_S:
            why = f"that of {seen.target} ends at {_at(until_s)}"
            yield Check("certificate", "warning", why, "see whether anybody renews it")


def _at(unix_s: float) -> str:
    """Format a Unix time. A claim may be any number: a number outside the calendar is shown unchanged."""
    try:
        return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, ValueError, OSError):
        return f"{unix_s:g}"
