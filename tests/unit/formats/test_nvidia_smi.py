"""`nvidia-smi -q -x` of several driver generations, and of GPUs in trouble."""

from dataclasses import replace

import pytest
from hyperscout_formats.facts.facts import Gpu, MigInstance, NvlinkFabric
from hyperscout_formats.nvidia.nvidia_smi import MAX_GPUS, parse
from hyperscout_formats.text.errors import FormatError
from hyperscout_sim.fabric import nvlink
from hyperscout_sim.readings.nvidia_smi_text import nvidia_smi_text

UUID = "GPU-11111111-2222-3333-4444-555555555555"
CLUSTER = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
ZERO = "00000000-0000-0000-0000-000000000000"


def log(
    *gpus: str, driver: str = "550.54.15", dtd: str = "nvsmi_device_v12.dtd", declared: str = ""
) -> bytes:
    head = f'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "{dtd}"{declared}>\n'
    body = (
        f"<nvidia_smi_log>\n\t<driver_version>{driver}</driver_version>\n{''.join(gpus)}</nvidia_smi_log>\n"
    )
    return (head + body).encode()


def gpu(fabric: str = "", mig: str = "", uuid: str = UUID, bus_id: str = "00000000:1B:00.0") -> str:
    return (
        f'\t<gpu id="{bus_id}">\n\t\t<product_name>NVIDIA H100 80GB HBM3</product_name>\n'
        f"\t\t<uuid>{uuid}</uuid>\n{mig}\t\t<pci><pci_bus>1B</pci_bus><pci_bus_id>{bus_id}</pci_bus_id></pci>\n"
        f"\t\t<clocks><graphics_clock>345 MHz</graphics_clock></clocks>\n{fabric}\t</gpu>\n"
    )


def fabric(state: str, status: str = "", clique: str = "", cluster: str = "", health: str = "") -> str:
    parts = {"state": state, "status": status, "cliqueId": clique, "clusterUuid": cluster}
    inner = "".join(f"<{name}>{text}</{name}>" for name, text in parts.items() if text)
    return f"\t\t<fabric>{inner}{health}</fabric>\n"


def health(**said: str) -> str:
    return f"<health>{''.join(f'<{name}>{text}</{name}>' for name, text in said.items())}</health>"


WELL = health(bandwidth="Full", route_unhealthy="False", incorrect_configuration="None", summary="Healthy")
FABRICS = {
    # what the driver prints: what is read
    "R470 and older: nothing": ("", None),
    "R535, A100: N/A": (fabric("N/A", "N/A"), None),
    "R535, HGX H100": (fabric("Completed", "Success"), NvlinkFabric("completed")),
    "R550, HGX H100": (
        fabric("Completed", "Success", "0", ZERO, health(bandwidth="N/A")),
        NvlinkFabric("completed"),
    ),
    "R570, GB200": (
        fabric("Completed", "Success", "32766", CLUSTER.upper(), health(bandwidth="Full")),
        NvlinkFabric("completed", "", CLUSTER, 32766),
    ),
    "R580, GB300, well": (
        fabric("Completed", "Success", "1", CLUSTER, WELL),
        NvlinkFabric("completed", "", CLUSTER, 1),
    ),
    "R580, GB300, sick": (
        fabric(
            "Completed",
            "Success",
            "1",
            CLUSTER,
            health(
                bandwidth="Degraded",
                route_recovery_in_progress="True",
                route_unhealthy="True",
                access_timeout_recovery="True",
                incorrect_configuration="Insufficient Nvlinks",
                summary="Unhealthy",
            ),
        ),
        NvlinkFabric(
            "completed",
            "",
            CLUSTER,
            1,
            (
                "degraded bandwidth",
                "route recovery",
                "route unhealthy",
                "access timeout",
                "incorrect configuration",
            ),
        ),
    ),
    "only its summary is bad": (
        fabric("Completed", "Success", "1", CLUSTER, health(bandwidth="Full", summary="Limited Capacity")),
        NvlinkFabric("completed", "", CLUSTER, 1, ("limited capacity",)),
    ),
    "names with underscores": (
        f"<fabric><state>Completed</state><clique_id>7</clique_id><cluster_uuid>{CLUSTER}</cluster_uuid></fabric>",
        NvlinkFabric("completed", "", CLUSTER, 7),
    ),
    "the fabric manager does not run": (fabric("Not Started", "N/A"), NvlinkFabric("not-started")),
    "it is at work": (fabric("In Progress", "N/A", "N/A", "N/A"), NvlinkFabric("in-progress")),
    "not supported": (fabric("Not Supported"), NvlinkFabric("not-supported")),
    "it failed": (
        fabric("Completed", "Unknown Error", "0", ZERO),
        NvlinkFabric("completed", "Unknown Error"),
    ),
}


@pytest.mark.parametrize("name", FABRICS)
def test_fabrics(name: str) -> None:
    text, expected = FABRICS[name]
    [found], problems = parse(log(gpu(text)))
    assert problems == ()
    assert found == Gpu(UUID, "NVIDIA H100 80GB HBM3", "0000:1b:00.0", "550.54.15", fabric=expected)


TWO_INSTANCES = (
    "<mig_mode><current_mig>Enabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode><mig_devices>"
    "<mig_device><index>0</index><gpu_instance_id>3</gpu_instance_id>"
    "<compute_instance_id>0</compute_instance_id><device_attributes><shared>"
    "<copy_engine_count>1</copy_engine_count></shared></device_attributes></mig_device>"
    "<mig_device><index>1</index><gpu_instance_id>4</gpu_instance_id>"
    "<compute_instance_id>1</compute_instance_id></mig_device></mig_devices>"
)
MIG = {
    "none in this card": ("<mig_mode><current_mig>N/A</current_mig></mig_mode>", "", ()),
    "off": (
        "<mig_mode><current_mig>Disabled</current_mig></mig_mode><mig_devices>None</mig_devices>",
        "disabled",
        (),
    ),
    "on, two instances": (
        TWO_INSTANCES,
        "enabled",
        (MigInstance("", "", 3, 0), MigInstance("", "", 4, 1)),
    ),
}


@pytest.mark.parametrize("name", MIG)
def test_mig(name: str) -> None:
    text, mode, instances = MIG[name]
    [found], problems = parse(log(gpu(mig=text)))
    assert (found.mig_mode, found.mig_instances, problems) == (mode, instances, ())


def test_what_is_printed_of_made_up_gpus_reads_back() -> None:
    tray = nvlink.unhealthy(nvlink.nvl72_tray("n1", CLUSTER), "degraded bandwidth", which=[2])
    for gpus in (
        nvlink.hgx_host("n1"),
        tray,
        nvlink.pcie_host("n1"),
        nvlink.in_progress(tray),
        nvlink.failed_fabric(tray, "Unknown Error"),
        tuple(replace(x, fabric=None, mig_mode="") for x in tray),
        (),
    ):
        found, problems = parse(nvidia_smi_text(gpus))
        assert problems == ()
        blank = {"links": (), "peers": (), "numa_node": None, "nearest_nics": ()}
        assert found == tuple(replace(x, **blank) for x in gpus)  # type: ignore[arg-type]


PROBLEMS = {
    "lost": (gpu(uuid="[GPU is lost]"), "0000:1b:00.0: expected a UUID, found '[GPU is lost]'"),
    "no address": (gpu(bus_id="N/A"), "GPU 2: no PCI address"),
    "twice": (gpu(bus_id="00000000:43:00.0"), "GPU 2 at 0000:43:00.0: another GPU has the same PCI address"),
    "unknown state": (gpu(fabric("Dreaming")), "0000:1b:00.0: unknown fabric state 'dreaming'"),
    "no clique": (
        gpu(fabric("Completed", "Success", "N/A", CLUSTER)),
        "0000:1b:00.0: a cluster UUID without a clique",
    ),
    "a huge clique": (
        gpu(fabric("Completed", "Success", "4294967296", CLUSTER)),
        "0000:1b:00.0: a cluster UUID without a clique",
    ),
    "too many instances": (
        gpu(mig="<mig_devices>" + "<mig_device></mig_device>" * 65 + "</mig_devices>"),
        "more than 64 MIG instances",
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_passed_over_is_named_and_the_rest_counts(name: str) -> None:
    text, expected = PROBLEMS[name]
    found, [problem] = parse(log(gpu(bus_id="00000000:43:00.0"), text), "node-0001.xml")
    assert expected in str(problem)
    assert str(problem).startswith("node-0001.xml: ")
    assert found[0].pci_address == "0000:43:00.0"


def test_more_gpus_than_any_node_has_are_cut_off() -> None:
    many = [gpu(bus_id=f"0000:{bus:02x}:00.0") for bus in range(MAX_GPUS + 3)]
    found, [problem] = parse(log(*many))
    assert len(found) == MAX_GPUS
    assert str(problem) == f"nvidia-smi: more than {MAX_GPUS} GPUs"


BAD = {
    "nothing": (b"", "not XML: no element found"),
    "a complaint": (
        b"Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost. Reboot the system\n",
        "it begins with 'Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost.",
    ),
    "plain -q": (b"\n==============NVSMI LOG==============\n", "'==============NVSMI LOG=============="),
    "another document": (
        b"<html></html>",
        "the root element is <html>; expected the output of `nvidia-smi -q -x`",
    ),
    "cut off": (log(gpu())[:-30], "not XML"),
    "an entity": (log(declared=' [<!ENTITY a "aaaa">]'), "declares an entity 'a'"),
    "an outside entity": (log(declared=' [<!ENTITY a SYSTEM "file:///etc/passwd">]'), "declares an entity"),
    "a parameter entity": (log(declared=' [<!ENTITY % a "b">]'), "declares an entity"),
    "too deep": (b"<nvidia_smi_log>" + b"<a>" * 40, "more than 32 deep"),
    "not UTF-8": (log(gpu()).replace(b"H100", b"\xff\xfe"), "not XML: not well-formed"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_output_of_it_is_refused(name: str) -> None:
    data, expected = BAD[name]
    with pytest.raises(FormatError) as caught:
        parse(data, "node.xml")
    assert expected in str(caught.value)
    assert str(caught.value).startswith("node.xml:")
    assert str(caught.value).isprintable()


def test_the_dtd_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the parser opens a file or a socket")

    text = log(gpu(), dtd="http://127.0.0.1:9/nvsmi.dtd")
    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    assert len(parse(text)[0]) == 1


def test_what_it_says_of_its_encoding_is_not_believed() -> None:
    for encoding in ("klingon", "utf-7", "utf-16"):
        text = log(gpu()).replace(b'version="1.0"', f'version="1.0" encoding="{encoding}"'.encode())
        assert len(parse(text)[0]) == 1
