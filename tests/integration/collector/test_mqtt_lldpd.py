"""A switch and a DPU as docs/mqtt.md sets them up: real lldpd, the script, mosquitto_pub, a link."""

import asyncio
import json
import sys
from pathlib import Path

from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.settings.settings import load_settings
from hyperscout_collector.ingest.device_messages import read
from support.lldpd import ROUTER, Daemon, Lab, lldp_lab, run
from support.mosquitto import Mosquitto, mosquitto
from support.mqtt_world import password_file, secured
from support.real import ROOT, require_real, tool
from support.waiting import TIMEOUT_S

require_real("root", "netns", "lldpd", "mosquitto", "mosquitto_pub")

SCRIPT = ROOT / "deploy" / "devices" / "lldp_report.py"


def report(daemon: Daemon, reporter: str) -> str:
    """What the script prints there."""
    asking = f"{tool('lldpcli')} -u {daemon.socket}"
    inside = ("netns", "exec", daemon.namespace, sys.executable, SCRIPT, reporter, "--lldpcli", asking)
    return run(tool("ip") or "ip", *map(str, inside))


def publish(broker: Mosquitto, user: str, message: str) -> None:
    words = ("-V", "mqttv5", "-h", "127.0.0.1", "-p", str(broker.port), "-u", user, "-P", f"pw-{user}")
    run(tool("mosquitto_pub") or "", *words, "-q", "1", "-t", f"lab/findings/{user}", "-m", message)


def wired(lab: Lab) -> tuple[Daemon, Daemon]:
    lab.cable(("leaf-1", "swp1"), ("dpu", "p0"))
    leaf = lab.lldpd("leaf-1", ["swp1"], ROUTER)
    dpu = lab.lldpd("dpu", ["p0"])
    leaf.await_neighbours(1)
    dpu.await_neighbours(1)
    return leaf, dpu


async def test_a_switch_and_a_dpu_report_by_mosquitto_pub(tmp_path: Path) -> None:
    async with mosquitto(tmp_path / "broker") as broker:
        broker.kill()
        broker.lines = secured(broker, "collector", "leaf-1", "bf3-17")
        await broker.start()
        flags = {
            "listen": "127.0.0.1:0",
            "http_listen": "",
            "rest_listen": "",
            "data_dir": tmp_path / "data",
            "settle_s": 0.05,
            "mqtt_broker": f"mqtt://127.0.0.1:{broker.port}",
            "mqtt_user": "collector",
            "mqtt_password_file": password_file(tmp_path, "collector"),
            "mqtt_topic_prefix": "lab",
            "mqtt_devices": ("leaf-1=switch/leaf-1", "bf3-17=node-17"),
        }
        with lldp_lab() as lab:
            leaf, dpu = await asyncio.to_thread(wired, lab)
            said = [report(leaf, "switch/leaf-1"), report(dpu, "node-17")]
        async with Collector(load_settings(flags=flags)) as collector:
            mqtt = collector.components.publishing.mqtt
            async with asyncio.timeout(TIMEOUT_S):
                while mqtt is None or not mqtt.counters.connected:
                    await asyncio.sleep(0.02)
                for user, message in zip(("leaf-1", "bf3-17"), said, strict=True):
                    read(message.encode())
                    await asyncio.to_thread(publish, broker, user, message)
                while not collector.components.publishing.watchers.current.topology.links:
                    await asyncio.sleep(0.02)
            assert dict(mqtt.counters.inbound) == {"taken": 2}
            topology = collector.components.publishing.watchers.current.topology
            assert [(h.tier, h.nodes) for h in topology.hypernodes] == [(1, ("node-17",))]
            (link,) = topology.links
            assert {link.a_port, link.b_port} == {"p0", "swp1"}
            assert [switch.name for switch in topology.switches] == ["leaf-1"]
    port = json.loads(said[0])["findings"][0]["switchPort"]
    assert (port["carrier"], port["portId"], port["systemName"]) == (True, "swp1", "leaf-1")
    assert port["neighbours"][0]["systemName"] == "dpu"
