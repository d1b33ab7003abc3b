#!/usr/bin/env python3
"""Prints the LLDP neighbours of this machine as a message for hyperscout's collector (docs/mqtt.md).

    lldp_report.py switch/leaf-1 | mosquitto_pub -t hyperscout/findings/leaf-1 -q 1 -s ...
    lldp_report.py node-17       | mosquitto_pub -t hyperscout/findings/bf3-17 -q 1 -s ...

On a switch it reports for the switch, on a DPU for the node that contains it. Run it each minute (a systemd
timer, cron): each message is the full state, so a lost message does no harm. `--lldpcli` is the command that
queries lldpd (on SONiC: "docker exec -i lldp lldpcli"). Needs Python 3.7 and no packages.
"""

import argparse
import datetime as dt
import json
import shlex
import subprocess
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(
        description="LLDP neighbours of this machine, for hyperscout's collector"
    )
    parser.add_argument("reporter", help="switch/NAME on a switch, else the name of the node")
    parser.add_argument("--lldpcli", default="lldpcli", help="command that queries lldpd")
    given = parser.parse_args()
    heard = interfaces(asked(given.lldpcli, "show", "neighbors", "details"))
    own = interfaces(asked(given.lldpcli, "show", "interfaces"))
    print(json.dumps(message(given.reporter, own, heard, now(), system)))


def asked(command, *words):
    words = [*shlex.split(command), "-f", "json0", *words]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, timeout=20).stdout.decode())


def interfaces(document):
    """(name, entry) of each neighbour, or of each port of our own."""
    return [
        (entry["name"], entry)
        for part in document.get("lldp", [])
        for entry in part.get("interface", [])
        if entry.get("via", "LLDP") == "LLDP"
    ]


def message(reporter, own, heard, at, about):
    is_switch = reporter.startswith("switch/")
    findings = []
    for name, entry in own:
        neighbours = [neighbour(e) for n, e in heard if n == name and ids(e)]
        payload = dict(about(name), interface=name, neighbours=neighbours)
        if is_switch:
            payload.update(ids(entry), systemName=value(entry, "chassis", "name"))
        findings.append(
            {
                "key": {"node": reporter, "probe": "switch" if is_switch else "device", "subject": name},
                "observedAt": at,
                "outcome": "OUTCOME_DATA" if neighbours else "OUTCOME_NOTHING",
                "switchPort" if is_switch else "lldp": payload,
            }
        )
    return {"findings": findings, "fullStateEnds": True, "sentAt": at}


def ids(entry):
    """Chassis id and port id, which identify a neighbour; {} if one is missing."""
    found = {}
    for part in ("chassis", "port"):
        one = first(first(entry, part), "id")
        if "value" not in one:
            return {}
        found[part + "IdSubtype"] = one.get("type", "")
        found[part + "Id"] = one["value"].lower() if one.get("type") == "mac" else one["value"]
    return found


def neighbour(entry):
    chassis = first(entry, "chassis")
    return dict(
        ids(entry),
        ttlS=int(value(entry, "port", "ttl") or 120),
        portDescription=value(entry, "port", "descr"),
        systemName=value(entry, "chassis", "name"),
        managementAddresses=[one["value"] for one in chassis.get("mgmt-ip", []) if "value" in one],
        capabilities=sorted(one["type"] for one in chassis.get("capability", []) if one.get("enabled")),
    )


def first(entry, name):
    """The first entry: json0 has a list for everything."""
    found = entry.get(name) or [{}]
    return found[0]


def value(entry, part, name):
    return first(first(entry, part), name).get("value", "")


def system(name, root="/sys/class/net"):
    """The kernel's data of a port; unknown values are left out."""

    def said(file):
        try:
            return Path(root, name, file).read_text().strip()
        except OSError:  # the kernel's answer for the speed of a port that is down
            return ""

    speed = said("speed")
    return {
        "mac": said("address"),
        "carrier": said("carrier") == "1",
        "speedMbps": int(speed) if speed.isdigit() else 0,
        "carrierChanges": int(said("carrier_changes") or 0),
    }


def now():
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # noqa: UP017 - Python 3.7


if __name__ == "__main__":
    main()
