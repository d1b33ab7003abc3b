"""Judges the connection to the collectors: token, each stage up to Hello, clock, certificates. Pure."""

from collections.abc import Iterator, Sequence

from hyperscout_runtime.credentials import protocol_hint
from hyperscout_runtime.units import CLOCK_FAILED_S, CLOCK_WARNING_S, NS, rfc3339

from hyperscout_agent.doctor.facts import AgentSeen, Check, CollectorSeen, TokenSeen

_SOON_S = 7 * 86_400


def token_file(token: TokenSeen | None, now_s: float) -> Check | None:
    if token is None:
        return None
    if token.trouble:
        return Check("token", "failed", f"{token.path}: {token.trouble}", "check token_file in the settings")
    if token.expires_s is None:
        return Check("token", "ok", f"{token.path} contains no expiry time")
    if token.expires_s <= now_s:
        todo = "renew the token: the kubelet renews a projected token, so check the kubelet and the clocks"
        return Check("token", "failed", f"{token.path} expired at {_at(token.expires_s)}", todo)
    return Check("token", "ok", f"{token.path} is valid until {_at(token.expires_s)}")


def collector(seen: CollectorSeen, reporter: str, agent: AgentSeen) -> Check:
    """Judge the stage that was reached with one collector."""
    name = f"collector {seen.target}"
    match seen.stage:
        case "greeted" if seen.code:
            if agent.trouble or agent.reporter != reporter:
                todo = "find it with `hyperscout get nodes`, and give each node its own name"
                why = f"it accepts the credentials, but another agent reports as {reporter}"
                return Check(name, "warning", why, todo)
            return Check(name, "ok", f"it accepts the credentials and has the stream of {reporter}")
        case "greeted":
            return Check(
                name, "ok", f"it accepts the credentials and the name {reporter}; version {seen.version}"
            )
        case "settings":
            return Check(name, "failed", seen.detail, "correct the agent's settings")
        case "name":
            why = f"the name is not found: {seen.detail}"
            return Check(name, "failed", why, "check collectors in the settings, and this host's DNS")
        case "connect":
            todo = (
                "check that the collector runs, and that no firewall or network policy blocks the connection"
            )
            return Check(name, "failed", f"no connection: {seen.detail}", todo)
        case "tls":
            todo = "check tls_ca and tls_server_name in the settings, and the collector's certificate"
            return Check(name, "failed", seen.detail, todo)
        case "standby":
            return Check(
                name,
                "failed",
                f"it is a standby: {seen.detail}",
                "read the collectors' logs and check their Lease",
            )
        case "identity":
            return Check(name, "failed", *_refused(seen, reporter))


def _refused(seen: CollectorSeen, reporter: str) -> tuple[str, str]:
    """Return why the collector rejected the Hello, and the next step."""
    reason = seen.detail or seen.code
    if hint := protocol_hint(reason):
        return hint
    todo = {
        "UNAUTHENTICATED": "use a token for its audience (token_file), or a certificate that it trusts",
        "PERMISSION_DENIED": f"use the credentials of {reporter}: check node and role in the settings",
        "RESOURCE_EXHAUSTED": "the collector is full: raise its max_streams",
        "UNAVAILABLE": "if it uses TLS, set tls_ca; if it requires a certificate, set tls_cert and tls_key",
        "UNIMPLEMENTED": "another program listens there: check collectors in the settings",
    }.get(seen.code, "read the collector's log")
    return f"it rejects the Hello: {reason}", todo


def clock(collectors: Sequence[CollectorSeen]) -> Check:
    """Compare this host's clock with the collectors' clocks. The largest offset decides."""
    timed = [seen for seen in collectors if seen.clock_offset_s is not None]
    if not timed:
        return Check("clock", "skipped", "no collector reported its time")

    def off_s(seen: CollectorSeen) -> float:
        return max(0.0, abs(seen.clock_offset_s or 0.0) - seen.uncertain_s)

    worst = max(timed, key=off_s)
    offset_s = worst.clock_offset_s or 0.0
    why = f"{abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} {worst.target}"
    todo = "check time synchronisation (chrony, systemd-timesyncd) on both hosts"
    if off_s(worst) >= CLOCK_FAILED_S:
        return Check("clock", "failed", f"{why}: the validity of tokens and certificates depends on it", todo)
    if off_s(worst) >= CLOCK_WARNING_S:
        return Check("clock", "warning", f"{why}; the ages of findings are still correct", todo)
    return Check("clock", "ok", f"within {max(abs(offset_s), worst.uncertain_s):.2f} s of {worst.target}")


def certificates(collectors: Sequence[CollectorSeen], now_s: float) -> Iterator[Check]:
    """Warn about collector certificates that expire within 7 days."""
    for seen in collectors:
        until_s = seen.certificate_until_s
        if until_s is not None and until_s - now_s < _SOON_S:
            why = f"the certificate of {seen.target} expires at {_at(until_s)}"
            yield Check("certificate", "warning", why, "renew it")


def _at(unix_s: float) -> str:
    """Format a Unix time. A claim may be any number: a number outside the calendar is shown unchanged."""
    try:
        return rfc3339(int(unix_s) * NS)
    except (OverflowError, ValueError, OSError):
        return f"{unix_s:g}"
