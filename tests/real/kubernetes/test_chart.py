"""The Helm chart and its plain rendering: accepted by a real server, strict with values, restricted pods."""

import base64
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hyperscout_agent.settings.settings import load_settings as load_agent
from hyperscout_collector.app.settings.settings import load_settings as load_collector
from hyperscout_collector.identity.issuer import CertificateIssuer
from hyperscout_gates.state.gang_plan import LABELS as PLAN_LABELS
from kube.control_plane import ControlPlane, Options
from support.chart import (
    EVERYTHING,
    FABRIC,
    NAMESPACE,
    PROFILES,
    RELEASE,
    define_others,
    helm_template,
    install,
    one,
    render,
)
from support.kubernetes import Cluster
from support.real import ROOT, require_real

require_real("kubernetes", "helm")

MANIFEST = ROOT / "deploy" / "manifests" / "hyperscout.yaml"
CRD = "hypernodes.topology.volcano.sh"
GANGS = f"{RELEASE}-gangs"
INFINIBAND = PROFILES["InfiniBand by a device plugin"]
profiles = pytest.mark.parametrize("profile", PROFILES)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own without the HyperNode definition: the chart brings it."""
    with ControlPlane(tmp_path_factory.mktemp("bare"), Options(crd=None)) as plane:
        cluster = Cluster(plane)
        define_others(cluster)
        cluster.apply(namespace(NAMESPACE))
        cluster.apply(of_release(namespace(GANGS)))  # a dry run creates no namespace for what lies in it
        yield cluster


def of_release(found: dict[str, Any]) -> dict[str, Any]:
    """As an earlier installation left it: helm takes it over."""
    owner = {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": NAMESPACE}
    labels = {**found["metadata"].get("labels", {}), "app.kubernetes.io/managed-by": "Helm"}
    return found | {"metadata": found["metadata"] | {"labels": labels, "annotations": owner}}


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def dumped(objects: list[dict[str, Any]]) -> str:
    return "---\n".join(map(yaml.safe_dump, objects))


# --- what a server says -------------------------------------------------------------------------------------


@profiles
def test_a_server_takes_every_object_strictly(bare: Cluster, profile: str) -> None:
    objects = render(PROFILES[profile])
    said = bare.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=dumped(objects))
    assert len(said.splitlines()) == len(objects)


def test_a_server_takes_the_plain_manifest(bare: Cluster) -> None:
    said = bare.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", MANIFEST)
    assert len(said.splitlines()) == len([o for o in yaml.safe_load_all(MANIFEST.read_text()) if o])


def test_install_upgrade_and_uninstall(bare: Cluster) -> None:
    said = install(bare, {})
    assert "STATUS: deployed" in said
    assert "pod-security.kubernetes.io/enforce=privileged" in said
    bare.kubectl("wait", "--for=condition=Established", "--timeout=120s", "crd", CRD)
    before = bare.get("secret", f"{RELEASE}-tls", "-n", NAMESPACE)["data"]

    assert "STATUS: deployed" in install(bare, EVERYTHING, verb="upgrade")
    assert bare.get("secret", f"{RELEASE}-tls", "-n", NAMESPACE)["data"] == before
    kinds = "servicemonitor,podmonitor,networkpolicy,poddisruptionbudget"
    assert len(bare.get(kinds, "-n", NAMESPACE)) == 4

    again = bare.run("helm", "install", "other", str(ROOT / "deploy" / "chart"), "-n", NAMESPACE)
    assert again.code != 0
    assert "belongs to release hyperscout: set crds.install=false" in again.err

    leave_traces(bare)
    bare.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")
    assert traces(bare) == LEFT
    kinds = "all,secret,cm,sa,role,rolebinding,clusterrole,clusterrolebinding,pdb,networkpolicy"
    assert bare.get(kinds, "-A", "-l", "app.kubernetes.io/part-of=hyperscout") == []
    # And back again: what `keep` left is taken over.
    assert "STATUS: deployed" in install(bare, {})
    bare.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")
    for words in CLEANING:
        bare.kubectl(*words.split())
    assert traces(bare) == set()


# What docs/chart.md says that an uninstall leaves, and the commands there that take it away.
LEFT = {"definition", "HyperNode", "Lease", "taint", "label", "Kueue topology", "plan of a gang"}
CLEANING = (
    "delete hypernodes -l app.kubernetes.io/managed-by=hyperscout",
    f"delete crd {CRD}",
    "taint nodes --all hyperscout.io/degraded-",
    "label nodes --all hyperscout.io/leaf-",
    "delete topologies.kueue.x-k8s.io hyperscout",
    f"delete configmaps -n {GANGS} -l app.kubernetes.io/component=gang-plan",
    f"delete lease -n {NAMESPACE} {RELEASE}-collector",
)


def leave_traces(bare: Cluster) -> None:
    """What a collector and an admin write while it runs."""
    api = "topology.volcano.sh/v1alpha1"
    bare.apply({"apiVersion": api, "kind": "HyperNode"} | leaf("leaf-1"))
    bare.kubectl("label", "hypernode", "leaf-1", "app.kubernetes.io/managed-by=hyperscout")
    bare.nodes(["gpu-1"])
    bare.kubectl("taint", "node", "gpu-1", "hyperscout.io/degraded=x:NoSchedule")
    bare.kubectl("label", "node", "gpu-1", "hyperscout.io/leaf=leaf-1")
    meta = {"name": "hyperscout"}
    bare.apply({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Topology", "metadata": meta})
    meta = {"name": f"{RELEASE}-collector", "namespace": NAMESPACE}
    bare.apply({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta})
    meta = {"name": "gang-a", "namespace": GANGS}
    bare.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta | {"labels": dict(PLAN_LABELS)}})


def traces(bare: Cluster) -> set[str]:
    node = bare.get("node", "gpu-1")
    there = {
        "definition": bare.run("kubectl", "get", "crd", CRD).code == 0,
        "taint": any(taint["key"] == "hyperscout.io/degraded" for taint in node["spec"].get("taints", ())),
        "label": "hyperscout.io/leaf" in node["metadata"]["labels"],
        "Kueue topology": bool(bare.get("topologies.kueue.x-k8s.io")),
        "plan of a gang": bare.run("kubectl", "get", "configmap", "gang-a", "-n", GANGS).code == 0,
        "Lease": bare.run("kubectl", "get", "lease", f"{RELEASE}-collector", "-n", NAMESPACE).code == 0,
    }
    there["HyperNode"] = there["definition"] and bool(bare.get("hypernodes"))
    return {what for what, is_there in there.items() if is_there}


def leaf(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"tier": 1}}


def pod_of(objects: list[dict[str, Any]], workload: str, where: str) -> dict[str, Any]:
    """Of the Deployment or DaemonSet whose name ends so."""
    kind = "DaemonSet" if workload == "-agent" else "Deployment"
    template = one(objects, kind, workload)["spec"]["template"]
    spec = {**template["spec"], "serviceAccountName": "default", "priorityClassName": ""}
    spec.pop("runtimeClassName", None)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": where},
        "spec": spec,
    }


# What follows from hostNetwork, and the listener's NET_RAW: no more may come to it.
AGENT_BREAKS = ("host namespaces", "hostPort", "non-default capabilities", "probe or lifecycle host")


@pytest.mark.parametrize(
    ("workload", "level", "refused_for"),
    [
        ("-collector", "restricted", ()),
        ("-fabric", "restricted", ()),
        ("-agent", "baseline", AGENT_BREAKS),
        ("-agent", "privileged", ()),
    ],
)
def test_pod_security(kube: Cluster, workload: str, level: str, refused_for: tuple[str, ...]) -> None:
    """The collector is restricted; an agent is privileged only for what its work needs."""
    pod = pod_of(render({"fabric": FABRIC}), workload, "level")
    kube.apply(namespace("level", **{"pod-security.kubernetes.io/enforce": level}))
    kube.service_account("default", "level")
    done = kube.run("kubectl", "apply", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    assert (done.code == 0) is (not refused_for), done.err
    reasons = [reason for reason in AGENT_BREAKS if f"{reason} (" in done.err]
    assert tuple(reasons) == refused_for, done.err
    assert done.err.count(" (") == len(refused_for) + done.err.count(" (Forbidden)"), done.err


# --- what the containers get --------------------------------------------------------------------------------


@profiles
def test_settings_are_understood(profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files and variables of the pods, read by the programs that will read them."""
    objects = render(PROFILES[profile])
    for container, _ in containers(objects):
        for variable in container.get("env", ()):
            if variable["name"].startswith("HYPERSCOUT_COLLECTOR_"):
                monkeypatch.setenv(variable["name"], variable["value"].replace("$(POD_IP)", "fd00::7"))
    file = tmp_path / "settings.yaml"
    file.write_text(one(objects, "ConfigMap", "-collector")["data"]["collector.yaml"])
    collector = load_collector(file)
    file.write_text(one(objects, "ConfigMap", "-agent")["data"]["agent.yaml"])
    agent = load_agent(file, {"node": "gpu-1"})
    if PROFILES[profile].get("fabric"):
        account = one(objects, "ServiceAccount", "-fabric")["metadata"]["name"]
        file.write_text(one(objects, "ConfigMap", "-fabric")["data"]["fabric.yaml"])
        fabric = load_agent(file)
        assert fabric.reporter == f"fabric/{account}"
        tokens = f"{NAMESPACE}:{account}" if profile != "fabric without authentication" else ""
        assert collector.fabric_service_account == tokens
        assert len(fabric.snmp.access) == 2
        assert fabric.metrics.host == ("::" if profile == "IPv6" else "0.0.0.0")
    else:
        assert collector.fabric_service_account == ""
    assert agent.pod_resources.enabled is (profile == "devices of the kubelet")
    assert (agent.tls_ca is None) is (profile == "insecure")
    assert (collector.tls_cert is None) is (profile == "insecure")
    assert collector.rest_listen == ("" if profile == "no map" else f"{collector.listen[:-5]}50080")
    assert ("map.example" in collector.rest_hosts) is (profile == "no authentication")
    assert collector.kubernetes == ("dry-run" if profile.startswith("dry run") else "publish")
    assert agent.reporter == ("east/gpu-1" if profile == "agents of another cluster" else "gpu-1")
    assert list(collector.kubeconfigs) == (["east", "west"] if profile == "several clusters" else [])
    if profile == "everything":
        assert (collector.stale_after_s, collector.node_selector) == (120, "role=gpu")
        assert (agent.lldp.ports, agent.lldp.spawn_listener) == ("^eth", False)
        assert agent.collectors == ("192.0.2.7:50051", "hyperscout.example:50051")


def containers(objects: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(container, pod spec) of all workloads."""
    for found in objects:
        if found["kind"] in ("Deployment", "DaemonSet"):
            spec = found["spec"]["template"]["spec"]
            yield from ((container, spec) for container in spec["containers"])


@profiles
def test_containers_are_confined(profile: str) -> None:
    names = []
    for container, pod in containers(render(PROFILES[profile])):
        names.append(container["name"])
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"]["drop"] == ["ALL"]
        assert "privileged" not in context
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["enableServiceLinks"] is False, "a Service's variables would be taken for settings"
        if container["name"] == "lldp":
            assert context["capabilities"]["add"] == ["NET_RAW"]
            assert {mount["name"] for mount in container["volumeMounts"]} == {"run"}
            assert (context["runAsUser"], context["runAsNonRoot"]) == (0, False)
        elif container["name"] == "pod-resources":
            assert "add" not in context["capabilities"]
            mounts = {mount["name"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
            assert mounts == {"run": False, "pod-resources": True}
            assert (context["runAsUser"], context["runAsNonRoot"]) == (0, False)
        elif container["name"] == "dra":
            assert "add" not in context["capabilities"]
            assert [mount["name"] for mount in container["volumeMounts"]] == ["plugins-registry"]
            assert (context["runAsUser"], context["runAsNonRoot"]) == (0, False)
        else:
            assert "add" not in context["capabilities"]
            assert {**pod["securityContext"], **context}["runAsNonRoot"] is True
    agents = 1 + ("infiniband" in PROFILES[profile].get("agent", {}))
    lldp = [] if profile == "no LLDP" else ["lldp"] * agents
    fabric = ["fabric"] if "fabric" in PROFILES[profile] else []
    relay = ["pod-resources"] if profile == "devices of the kubelet" else []
    dra = ["dra"] if profile == "devices of DRA" else []
    assert sorted(names) == [*["agent"] * agents, "collector", *dra, *fabric, *lldp, *relay]


@pytest.mark.parametrize("profile", [name for name, values in PROFILES.items() if "fabric" in values])
def test_credentials_of_switches_are_in_one_pod_that_has_nothing_else(profile: str) -> None:
    objects = render(PROFILES[profile])
    workloads = {
        o["metadata"]["name"]: o["spec"] for o in objects if o["kind"] in ("Deployment", "DaemonSet")
    }
    secrets = PROFILES[profile]["fabric"]["credentials"]
    users = {name for name, spec in workloads.items() for s in secrets.values() if s in json.dumps(spec)}
    assert users == ({f"{RELEASE}-fabric"} if secrets else set())
    assert (workloads[f"{RELEASE}-fabric"]["replicas"], workloads[f"{RELEASE}-fabric"]["strategy"]) == (
        1,
        {"type": "Recreate"},
    )
    pod = workloads[f"{RELEASE}-fabric"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert {"hostNetwork", "hostPID", "runtimeClassName"}.isdisjoint(pod)
    kinds = sorted({*v}.difference({"name"}).pop() for v in pod["volumes"])
    tokens = ["projected"] if profile != "fabric without authentication" else []
    assert kinds == ["configMap", "emptyDir", *tokens, *(["secret"] * (1 + len(secrets)))]
    mounts = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert {f"/etc/hyperscout/credentials/{name}" for name in secrets} <= mounts
    ours = {o["metadata"]["name"] for o in objects if o["kind"] == "ServiceAccount"}
    assert pod["serviceAccountName"] == f"{RELEASE}-fabric"
    assert pod["serviceAccountName"] in ours
    bound = json.dumps([o for o in objects if o["kind"].endswith("Binding")])
    assert pod["serviceAccountName"] not in bound, "no rights at the API server"


def test_the_policy_of_the_crawler_allows_dns_the_collector_and_the_given_ranges() -> None:
    objects = render(PROFILES["fabric"])
    policy = one(objects, "NetworkPolicy", "-fabric")["spec"]
    pod = one(objects, "Deployment", "-fabric")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= pod.items()
    assert sorted(policy["policyTypes"]) == ["Egress", "Ingress"]
    assert policy["ingress"] == [{"ports": [{"port": "metrics", "protocol": "TCP"}]}]
    dns, collector, switches = policy["egress"]
    assert {port["port"] for port in dns["ports"]} == {53, 5353}
    [peer] = collector["to"]
    chosen = one(objects, "Deployment", "-collector")["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= chosen.items()
    assert switches == {"ports": [{"port": 161, "protocol": "UDP"}, {"port": 443, "protocol": "TCP"}]}
    ranges = [{"ipBlock": {"cidr": "10.20.0.0/16"}}]
    narrow = render({"fabric": FABRIC, "networkPolicy": {"enabled": True, "fabricTo": ranges}})
    assert one(narrow, "NetworkPolicy", "-fabric")["spec"]["egress"][-1] == {"to": ranges}
    assert not [o for o in render({}) if "fabric" in o["metadata"]["name"]]


@pytest.mark.parametrize("profile", ["default", "everything", "no map"])
def test_what_the_collector_connects_to_is_bounded(profile: str) -> None:
    objects = render(PROFILES[profile])
    policy = one(objects, "NetworkPolicy", "-collector")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    pod = one(objects, "Deployment", "-collector")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= pod.items()
    dns, api, peers, *others = policy["egress"]
    assert [(p["port"], p["protocol"]) for p in dns["ports"] if p["port"] == 53] == [(53, "UDP"), (53, "TCP")]
    assert api == {"ports": [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]}
    assert peers["ports"] == [{"port": "grpc", "protocol": "TCP"}]
    assert peers["to"][0]["podSelector"]["matchLabels"].items() <= pod.items()
    stores = {"ports": [{"port": 5433, "protocol": "TCP"}, {"port": 5432, "protocol": "TCP"}]}
    broker = {"ports": [{"port": 8883, "protocol": "TCP"}]}
    assert others == ([stores, broker] if profile == "everything" else [])
    assert all(rule.get("ports") for rule in policy["ingress"] + policy["egress"])


@pytest.mark.parametrize(
    ("broker", "port"),
    [("mqtt://b", 1883), ("mqtt://b:1884", 1884), ("mqtts://b", 8883), ("mqtts://[fd00::1]:8884", 8884)],
)
def test_a_broker_is_reached_at_its_port(broker: str, port: int) -> None:
    objects = render({"collector": {"mqtt": {"broker": broker, "caSecret": "ca"}}})
    egress = one(objects, "NetworkPolicy", "-collector")["spec"]["egress"]
    assert egress[-1] == {"ports": [{"port": port, "protocol": "TCP"}]}


def test_network_policies_are_on_by_default_and_can_be_turned_off() -> None:
    def policies(values: dict[str, Any]) -> list[str]:
        return [o["metadata"]["name"] for o in render(values) if o["kind"] == "NetworkPolicy"]

    assert policies({"fabric": FABRIC}) == [f"{RELEASE}-collector", f"{RELEASE}-fabric"]
    assert policies({"networkPolicy": {"enabled": False}}) == []
    api = {"ports": [8443], "to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]}
    objects = render({"networkPolicy": {"apiServer": api}})
    rule = one(objects, "NetworkPolicy", "-collector")["spec"]["egress"][1]
    assert rule == {"ports": [{"port": 8443, "protocol": "TCP"}], "to": api["to"]}


def test_an_image_is_named_by_its_digest() -> None:
    digest = f"sha256:{'a' * 64}"
    images = {"registry": "registry.example", "agent": {"tag": "1", "digest": digest}}
    found = {c["name"]: c["image"] for c, _ in containers(render({"image": images}))}
    assert found["agent"] == found["lldp"] == f"registry.example/hyperscout/agent@{digest}"
    assert found["collector"] == "registry.example/hyperscout/collector:0.1.0"


def test_the_policy_comes_with_the_right_to_patch_pods() -> None:
    """And with nothing else."""

    def confined(values: dict[str, Any]) -> list[str]:
        kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "Namespace")
        return sorted(o["kind"] for o in render(values) if o["kind"] in kinds)

    policy = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    on = {"mode": "on"}
    assert confined({}) == confined({"gates": {"mode": "dry-run"}}) == []
    assert confined({"gates": on}) == ["Namespace", *policy]
    assert confined({"gates": on | {"confineCollector": False}}) == ["Namespace"]
    mine = {"name": "plans", "create": False}
    objects = render({"gates": on | {"namespace": mine}, "collector": {"serviceAccount": {"name": "me"}}})
    assert one(objects, "Role", "-gates")["metadata"]["namespace"] == "plans"
    settings = yaml.safe_load(one(objects, "ConfigMap", "-collector")["data"]["collector.yaml"])
    assert settings["gates_namespace"] == "plans"
    [account] = one(objects, "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    assert account["expression"].endswith(f'== "system:serviceaccount:{NAMESPACE}:me"')


def test_another_secret_restarts_no_pod_and_other_settings_restart_their_own_pod() -> None:
    def rendered(**fabric: Any) -> tuple[Any, dict[str, Any]]:
        """The data of the TLS Secret, which helm makes anew each time, and the pod templates by component.

        `render` would return the same Secret again: it caches.
        """
        done = helm_template({"fabric": {**FABRIC, **fabric}})
        assert done.returncode == 0, done.stderr
        objects = [found for found in yaml.safe_load_all(done.stdout) if found]
        pods = {name: one(objects, "Deployment", f"-{name}") for name in ("fabric", "collector")}
        pods["agent"] = one(objects, "DaemonSet")
        return one(objects, "Secret", "-tls")["data"], {n: o["spec"]["template"] for n, o in pods.items()}

    secret, before = rendered()
    other_secret, after = rendered()
    assert secret["tls.key"] != other_secret["tls.key"]
    assert before == after
    _, changed = rendered(settings={"snmp": {**FABRIC["settings"]["snmp"], "port": 1161}})
    assert [name for name in before if before[name] != changed[name]] == ["fabric"]


@profiles
def test_agents_see_no_key_and_no_token_of_the_api_server(profile: str) -> None:
    for container, pod in containers(render(PROFILES[profile])):
        if container["name"] != "agent":
            continue
        assert pod["automountServiceAccountToken"] is False
        for volume in pod["volumes"]:
            if "secret" in volume:
                assert [item["key"] for item in volume["secret"]["items"]] == ["ca.crt"]
            for source in volume.get("projected", {}).get("sources", ()):
                token = source["serviceAccountToken"]
                assert (token["audience"], token["expirationSeconds"]) == ("hyperscout", 3600)
        paths = [volume for volume in pod["volumes"] if "hostPath" in volume]
        folders = {
            "devices of the kubelet": {"pod-resources": "/data/kubelet/pod-resources"},
            "devices of DRA": {"plugins-registry": "/data/kubelet/plugins_registry"},
        }.get(profile, {})
        assert paths == [
            {"name": name, "hostPath": {"path": path, "type": "Directory"}} for name, path in folders.items()
        ]
        # Only the containers beside the agent mount them.
        assert folders.keys().isdisjoint(mount["name"] for mount in container["volumeMounts"])


@profiles
def test_files_that_settings_name_are_mounted(profile: str) -> None:
    """A standby that lacks the CA or its token follows no leader, and nothing but its log says so."""
    objects = render(PROFILES[profile])
    named = {}
    for name in ("collector", "agent", *(["fabric"] if "fabric" in PROFILES[profile] else [])):
        settings = yaml.safe_load(one(objects, "ConfigMap", f"-{name}")["data"][f"{name}.yaml"])
        named[name] = {x for x in settings.values() if str(x).startswith(("/etc/", "/var/run/"))}
        for container, pod in (found for found in containers(objects) if found[0]["name"] == name):
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            files = {
                f"{mount['mountPath']}/{file}"
                for mount in container["volumeMounts"]
                for file in files_in(volumes[mount["name"]])
            }
            assert named[name] <= files
    assert ("/etc/hyperscout/tls/ca.crt" in named["collector"]) is (profile != "insecure")
    tokens = PROFILES[profile].get("authenticate") != "none"
    assert ("/var/run/secrets/hyperscout/token" in named["collector"]) is tokens


@pytest.mark.parametrize("others", [(), ("-fabric",)])
def test_replicas_reach_each_other_whatever_other_pods_may(others: tuple[str, ...]) -> None:
    """And so does the crawler: it is a pod, and in no range of the nodes' addresses."""
    objects = render(PROFILES["everything"] | ({"fabric": FABRIC} if others else {}))
    grpc = one(objects, "NetworkPolicy", "-collector")["spec"]["ingress"][0]
    chosen = [peer["podSelector"]["matchLabels"] for peer in grpc["from"] if "podSelector" in peer]
    for name, labels in zip(("-collector", *others), chosen, strict=True):
        pod = one(objects, "Deployment", name)["spec"]["template"]["metadata"]["labels"]
        assert labels.items() <= pod.items()


def test_access_to_the_map_has_a_rule_of_its_own() -> None:
    """And where there is none, no port is open for it."""
    policy = one(render(EVERYTHING), "NetworkPolicy", "-collector")["spec"]["ingress"]
    [rest] = [rule for rule in policy if rule["ports"][0]["port"] == "rest"]
    assert rest["from"] == EVERYTHING["networkPolicy"]["restFrom"]
    without = render(PROFILES["no map"])
    [collector] = [c for c, _ in containers(without) if c["name"] == "collector"]
    services = [o for o in without if o["kind"] == "Service"]
    rules = one(without, "NetworkPolicy", "-collector")["spec"]["ingress"]
    named = [p["name"] for p in collector["ports"]] + [
        p["name"] for o in services for p in o["spec"]["ports"]
    ]
    assert "rest" not in named + [rule["ports"][0]["port"] for rule in rules]


def test_an_ingress_leads_to_the_map() -> None:
    objects = render(EVERYTHING)
    [rule] = one(objects, "Ingress")["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    main = one(objects, "Service", "-collector")
    assert (rule["host"], backend["name"]) == ("map.example", main["metadata"]["name"])
    assert backend["port"]["name"] in [port["name"] for port in main["spec"]["ports"]]


def files_in(volume: dict[str, Any]) -> Iterator[str]:
    """Files that a Secret's, a ConfigMap's or a token's volume holds."""
    for kind in ("secret", "configMap"):
        yield from (item["path"] for item in volume.get(kind, {}).get("items", ()))
    for source in volume.get("projected", {}).get("sources", ()):
        if "serviceAccountToken" in source:
            yield source["serviceAccountToken"]["path"]
        yield from files_in(source)


def test_probes_reach_an_address_that_answers() -> None:
    paths = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for exposed, host in ((False, "127.0.0.1"), (True, None)):
        objects = render({"agent": {"metrics": {"expose": exposed}}})
        [agent] = [c for c, _ in containers(objects) if c["name"] == "agent"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert agent[probe]["httpGet"].get("host") == host
        assert {probe: agent[probe]["httpGet"]["path"] for probe in agent if probe.endswith("Probe")} == paths
    [collector] = [c for c, _ in containers(render({})) if c["name"] == "collector"]
    assert {p: collector[p]["httpGet"]["path"] for p in collector if p.endswith("Probe")} == paths


@pytest.mark.parametrize("exposed", [False, True])
def test_a_port_that_is_taken_on_the_nodes_can_be_another(exposed: bool) -> None:
    objects = render({"agent": {"metrics": {"port": 60053, "expose": exposed}}})
    [agent] = [c for c, _ in containers(objects) if c["name"] == "agent"]
    settings = yaml.safe_load(one(objects, "ConfigMap", "-agent")["data"]["agent.yaml"])
    assert settings["metrics"] == {"port": 60053} | ({} if exposed else {"host": "127.0.0.1"})
    assert [port["containerPort"] for port in agent["ports"]] == [60053]
    assert {agent[probe]["httpGet"]["port"] for probe in agent if probe.endswith("Probe")} == {60053}


@pytest.mark.parametrize("name", ["-agent", "-agent-infiniband"])
def test_gpus_come_by_a_runtime_class(name: str) -> None:
    pod = one(render(EVERYTHING), "DaemonSet", name)["spec"]["template"]["spec"]
    assert pod["runtimeClassName"] == "nvidia"
    assert {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"} in pod["containers"][0]["env"]


def test_gpus_are_looked_for_where_the_pod_has_the_drivers_library() -> None:
    for enabled in (False, True):
        objects = render({"agent": {"nvml": {"enabled": enabled}}})
        settings = yaml.safe_load(one(objects, "ConfigMap", "-agent")["data"]["agent.yaml"])
        assert settings["nvlink"] == {"enabled": enabled}


@pytest.mark.parametrize(
    ("values", "restarted"),
    [
        ({"collector": {"settings": {"stale_after_s": 7}}}, {"Deployment"}),
        ({"agent": {"settings": {"refresh_interval_s": 7}}}, {"DaemonSet"}),
        ({"publish": {"taints": "on"}}, {"Deployment"}),
        ({"tokenAudience": "other"}, {"Deployment", "DaemonSet"}),
        ({"collector": {"service": {"type": "NodePort"}}, "serviceMonitor": {"enabled": True}}, set()),
    ],
)
def test_pods_follow_their_own_settings(values: dict[str, Any], restarted: set[str]) -> None:
    """A change that concerns the collector alone restarts no agent of ten thousand."""

    def templates(values: dict[str, Any]) -> dict[str, Any]:
        workloads = [o for o in render(values) if o["kind"] in ("Deployment", "DaemonSet")]
        return {o["kind"]: o["spec"]["template"] for o in workloads}

    before, after = templates({}), templates(values)
    assert {kind for kind in before if before[kind] != after[kind]} == restarted


def test_alerts_and_dashboards_are_those_of_the_repository() -> None:
    assert not [
        o for o in render({}) if o["kind"] == "PrometheusRule" or "dashboards" in o["metadata"]["name"]
    ]
    objects = render(EVERYTHING)
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())
    for alert in (rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule):
        alert["annotations"]["runbook_url"] = (
            f"https://git.example/hyperscout/{alert['annotations']['runbook_url']}"
        )
    assert one(objects, "PrometheusRule", "")["spec"] == rules
    found = one(objects, "ConfigMap", "-dashboards")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    files = {path.name: path.read_text() for path in (ROOT / "deploy" / "grafana").glob("*.json")}
    assert {name: json.loads(text) for name, text in found["data"].items()} == {
        name: json.loads(text) for name, text in files.items()
    }


@pytest.mark.parametrize(
    ("values", "holder"),
    [({"text": "links: []"}, f"{RELEASE}-collector-blueprint"), ({"configMap": "wiring"}, "wiring")],
)
def test_a_blueprint_is_in_a_config_map_of_its_own(values: dict[str, str], holder: str) -> None:
    """Another one is looked at by the collector, and restarts no pod."""

    def pod(values: dict[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = one(render({"collector": {"blueprint": values}}), "Deployment")["spec"][
            "template"
        ]
        return found

    assert "blueprint" not in json.dumps(pod({}))
    (volume,) = (v for v in pod(values)["spec"]["volumes"] if v["name"] == "blueprint")
    assert volume["configMap"]["name"] == holder
    if "text" in values:
        plan = "  # a\nlinks:\n- a -> b\n"
        assert pod(values) == pod({"text": plan})
        objects = render({"collector": {"blueprint": {"text": plan}}})
        assert one(objects, "ConfigMap", holder)["data"]["blueprint.yaml"] == plan


def test_the_kubeconfig_of_each_cluster_is_mounted_from_its_secret() -> None:
    objects = render(PROFILES["several clusters"])
    settings = yaml.safe_load(one(objects, "ConfigMap", "-collector")["data"]["collector.yaml"])
    ((container, pod),) = [found for found in containers(objects) if found[0]["name"] == "collector"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "clusters"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "clusters"]
    files = {
        f"{mount['mountPath']}/{item['path']}": source["secret"]["name"]
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    named = [text.partition("=")[2] for text in settings["clusters"]]
    assert [files[path] for path in named] == ["hyperscout-east", "hyperscout-west"]


def test_without_a_collector_its_account_has_rights_for_that_of_another_cluster() -> None:
    objects = render(PROFILES["agents of another cluster"])
    assert one(objects, "Deployment")["spec"]["replicas"] == 0
    roles = {found["metadata"]["name"] for found in objects if found["kind"] in ("ClusterRole", "Role")}
    assert "hyperscout-collector" in roles
    assert "hyperscout-collector-deployment" not in roles
    assert "hyperscout-collector-deployment" in {found["metadata"]["name"] for found in render({})}


@profiles
def test_what_changes_while_a_pod_lives_is_seen_by_it(profile: str) -> None:
    """The kubelet never renews a file that is mounted by subPath: no token, no CA, no settings."""
    for container, _ in containers(render(PROFILES[profile])):
        assert [m["name"] for m in container["volumeMounts"] if "subPath" in m] == []


@pytest.mark.parametrize("name", ["-agent", "-agent-infiniband"])
def test_what_an_operator_adds_comes_to_the_agent_alone(name: str) -> None:
    pod = one(render(EVERYTHING), "DaemonSet", name)["spec"]["template"]["spec"]
    agent, lldp = pod["containers"]
    assert {"name": "tools", "configMap": {"name": "tools"}} in pod["volumes"]
    assert {"name": "tools", "mountPath": "/opt/tools", "readOnly": True} in agent["volumeMounts"]
    assert [one["name"] for one in agent["env"]][-2:] == ["LD_PRELOAD", "HOST_IP"]
    assert [mount["name"] for mount in lldp["volumeMounts"]] == ["run"]
    assert "env" not in lldp


def test_a_service_for_other_networks_has_no_plaintext_port() -> None:
    ports = {"grpc": 50051, "rest": 50080, "grpc-mtls": 50054}
    for kind in ("ClusterIP", "NodePort", "LoadBalancer"):
        mtls = {"enabled": True, "clientCaSecret": "switches-ca"}
        fixed = {} if kind == "ClusterIP" else {"grpc-mtls": 30054}
        service = {"type": kind, "nodePorts": {"grpcMtls": fixed.get("grpc-mtls")}}
        objects = render({"collector": {"mtls": mtls, "service": service}})
        main = one(objects, "Service", "-collector")["spec"]
        assert {port["name"]: port["port"] for port in main["ports"]} == ports
        assert {p["name"]: p["nodePort"] for p in main["ports"] if "nodePort" in p} == fixed
        metrics = one(objects, "Service", "-metrics")["spec"]
        assert (metrics["clusterIP"], metrics.get("type")) == ("None", None)
        assert [port["port"] for port in metrics["ports"]] == [50052]


def test_the_estimator_has_a_port_of_its_own() -> None:
    """With the CA of clients, but without the port for agents with certificates."""
    estimator = {"enabled": True, "cluster": "member1"}
    service = {"type": "NodePort", "nodePorts": {"estimator": 30352}}
    values = {"estimator": estimator, "mtls": {"clientCaSecret": "karmada-ca"}, "service": service}
    objects = render({"collector": values})
    ports = one(objects, "Service", "-collector")["spec"]["ports"]
    assert {port["name"]: port.get("nodePort") for port in ports} == {
        "grpc": None,
        "rest": None,
        "estimator": 30352,
    }
    pod = one(objects, "Deployment", "-collector")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert {"name": "estimator", "containerPort": 10352} in container["ports"]
    assert [x["secret"]["secretName"] for x in pod["volumes"] if x["name"] == "clients"] == ["karmada-ca"]
    policy = one(objects, "NetworkPolicy", "-collector")["spec"]["ingress"][0]
    assert [port["port"] for port in policy["ports"]] == ["grpc", "estimator"]
    settings = yaml.safe_load(one(objects, "ConfigMap", "-collector")["data"]["collector.yaml"])
    assert (settings["estimator_listen"], settings["estimator_cluster"]) == ("0.0.0.0:10352", "member1")
    assert (settings["tls_client_ca"], "mtls_listen" in settings) == ("/etc/hyperscout/clients/ca.crt", False)
    default = yaml.safe_load(one(render({}), "ConfigMap", "-collector")["data"]["collector.yaml"])
    assert not default.keys() & {"estimator_listen", "estimator_cluster", "tls_client_ca"}


def test_the_certificate_is_for_the_names_that_agents_ask_for(tmp_path: Path) -> None:
    """A TLS handshake in memory, with what a collector of the chart issues from the chart's CA."""
    objects = render({"tls": {"extraNames": ["hyperscout.example"], "extraAddresses": ["192.0.2.7"]}})
    for file, text in one(objects, "Secret")["data"].items():
        (tmp_path / file).write_bytes(base64.b64decode(text))
    (tmp_path / "own").mkdir()
    settings = one(objects, "ConfigMap", "-collector")["data"]["collector.yaml"]
    settings = settings.replace("/etc/hyperscout/tls", str(tmp_path))
    (tmp_path / "collector.yaml").write_text(settings.replace("/run/hyperscout", str(tmp_path / "own")))
    found = load_collector(tmp_path / "collector.yaml")
    ca, own = (found.tls_issuer_cert, found.tls_issuer_key), (found.tls_cert, found.tls_key)
    assert None not in (*ca, *own)
    assert CertificateIssuer(*ca, found.tls_names, *own).check()  # type: ignore[arg-type]
    agent = yaml.safe_load(one(objects, "ConfigMap", "-agent")["data"]["agent.yaml"])
    assert agent["tls_server_name"] == "hyperscout-collector.hyperscout.svc"
    for name in (agent["tls_server_name"], "localhost", "127.0.0.1", "hyperscout.example", "192.0.2.7"):
        handshake(tmp_path, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, "elsewhere.example")


def test_a_certificate_of_an_earlier_chart_stays_in_use(bare: Cluster) -> None:
    """Its CA has no key any more. A Secret that is deleted comes back as a CA."""
    data = {"ca.crt": "b2xk", "tls.crt": "b3du", "tls.key": "a2V5"}
    meta = {"name": f"{RELEASE}-tls", "namespace": NAMESPACE}
    kind = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
    bare.apply(of_release({**kind, "metadata": meta, "data": data}))
    settings = []
    for verb in ("install", "upgrade"):
        install(bare, {}, verb=verb)
        found = bare.get("configmap", f"{RELEASE}-collector", "-n", NAMESPACE)["data"]["collector.yaml"]
        settings.append(yaml.safe_load(found))
        if verb == "install":
            assert bare.get("secret", f"{RELEASE}-tls", "-n", NAMESPACE)["data"] == data
            bare.kubectl("delete", "secret", f"{RELEASE}-tls", "-n", NAMESPACE)
    old, new = settings
    assert (old["tls_cert"], "tls_issuer_cert" in old) == ("/etc/hyperscout/tls/tls.crt", False)
    assert (new["tls_cert"], new["tls_issuer_cert"]) == ("/run/hyperscout/tls.crt", old["tls_cert"])
    bare.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")


def handshake(folder: Path, name: str) -> None:
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / "own" / "tls.crt", folder / "own" / "tls.key")
    client_context = ssl.create_default_context(cadata=(folder / "ca.crt").read_text())
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() == "TLSv1.3"


# --- values -------------------------------------------------------------------------------------------------

TYPOS: list[tuple[str, dict[str, Any], str]] = [
    ("a top-level name", {"colector": {}}, "colector"),
    ("a nested name", {"collector": {"replica": 3}}, "replica"),
    ("a setting", {"collector": {"settings": {"stale_after": 3}}}, "stale_after"),
    ("where REST listens", {"collector": {"settings": {"rest_listen": ":1"}}}, "rest_listen"),
    ("a host with a path", {"collector": {"rest": {"hosts": ["map.example/x"]}}}, "hosts"),
    ("a setting that the chart writes", {"collector": {"settings": {"listen": ":1"}}}, "listen"),
    ("an agent's setting", {"agent": {"settings": {"lldp": {"port": "x"}}}}, "port"),
    ("an agent's that the chart writes", {"agent": {"settings": {"lldp": {"source": "auto"}}}}, "source"),
    ("a mode", {"tls": {"mode": "selfsigned"}}, "mode"),
    ("a bare off", {"publish": {"taints": False}}, "taints"),
    ("a short digest", {"image": {"agent": {"digest": "sha256:abc"}}}, "digest"),
    ("a namespace of plans", {"gates": {"namespace": {"name": "../x"}}}, "name"),
    ("fewer than no replicas", {"collector": {"replicas": -1}}, "replicas"),
    ("a cluster without a kubeconfig", {"collector": {"clusters": [{"name": "east"}]}}, "kubeconfigSecret"),
    (
        "a cluster with a dot",
        {"collector": {"clusters": [{"name": "a.b", "kubeconfigSecret": "x"}]}},
        "clusters",
    ),
    ("an address without a port", {"agent": {"collectorAddresses": ["10.0.0.1"]}}, "collectorAddresses"),
    ("labels of nodes", {"agent": {"infiniband": {"nodeSelector": {"rdma": True}}}}, "nodeSelector"),
    ("a claim", {"agent": {"infiniband": {"resourceClaimTemplate": "A b"}}}, "resourceClaimTemplate"),
    ("a size in words", {"collector": {"data": {"size": "much"}}}, "size"),
    ("a resource", {"agent": {"resources": {"limit": {}}}}, "limit"),
    ("a port's name", {"collector": {"service": {"nodePorts": {"mtls": 30054}}}}, "mtls"),
    ("a setting of the DaemonSet's", {"agent": {"settings": {"snmp": {}}}}, "snmp"),
    ("a setting of fabrics", {"fabric": {"settings": {"lldp": {}}}}, "lldp"),
    ("a setting of a crawl", {"fabric": {"settings": {"snmp": {"range": []}}}}, "range"),
    ("a community in the values", {"fabric": {"community": "public"}}, "community"),
    ("a folder outside", {"fabric": {"credentials": {"../tls": "x"}}}, "../tls"),
    ("a setting as a variable", {"agent": {"extraEnv": [{"name": "HYPERSCOUT_AGENT_NODE"}]}}, "extraEnv"),
]
TOGETHER: list[tuple[str, dict[str, Any], str]] = [
    ("tokens in plaintext", {"tls": {"mode": "insecure"}}, "tokens are never sent in plaintext"),
    ("no issuer", {"tls": {"mode": "certManager"}}, "set tls.certManager.issuerRef"),
    (
        "gates of several clusters",
        {
            "gates": {"mode": "on"},
            "collector": {"clusters": [{"name": "east", "kubeconfigSecret": "x"}]},
        },
        "set gates.mode: off, or remove collector.clusters",
    ),
    (
        "no ca of PostgreSQL",
        {"collector": {"store": {"postgresql": {"url": "postgresql://db/t"}}}},
        "set caSecret",
    ),
    ("no ca of a broker", {"collector": {"mqtt": {"broker": "mqtts://b"}}}, "set collector.mqtt.caSecret"),
    (
        "an ingress without a host",
        {"collector": {"rest": {"ingress": {"enabled": True}}}},
        "set collector.rest.ingress.host",
    ),
    (
        "an ingress to nothing",
        {"collector": {"rest": {"enabled": False, "ingress": {"enabled": True, "host": "map.example"}}}},
        "set collector.rest.enabled: true too",
    ),
    (
        "a shared claim",
        {"collector": {"data": {"kind": "claim", "claimName": "x"}}},
        "replicas cannot share their evidence",
    ),
    (
        "no claim",
        {"collector": {"replicas": 1, "data": {"kind": "claim"}}},
        "set collector.data.claimName",
    ),
    (
        "two blueprints",
        {"collector": {"blueprint": {"text": "links: []", "configMap": "x"}}},
        "collector.blueprint: give text or configMap",
    ),
    ("no client CA", {"collector": {"mtls": {"enabled": True}}}, "set collector.mtls.clientCaSecret"),
    (
        "no CA of the scheduler",
        {"collector": {"estimator": {"enabled": True, "cluster": "member1"}}},
        "collector.estimator.enabled: set collector.mtls.clientCaSecret",
    ),
    (
        "no cluster to answer for",
        {"collector": {"estimator": {"enabled": True}, "mtls": {"clientCaSecret": "ca"}}},
        "set collector.estimator.cluster, the name of this cluster in Karmada",
    ),
    ("no switch", {"fabric": {"enabled": True}}, "no switch or manager is configured; set fabric.settings"),
    (
        "the default account asks",
        {"fabric": {**FABRIC, "serviceAccount": {"create": False}}},
        "fabric.serviceAccount: it needs an account that no other pod has",
    ),
    (
        "an agent's account asks",
        {"fabric": {**FABRIC, "serviceAccount": {"create": False, "name": f"{RELEASE}-agent"}}},
        "fabric.serviceAccount: it needs an account that no other pod has",
    ),
    (
        "retired, and nothing in its place",
        {"agent": {"infiniband": {"enabled": True}}},
        "agent.infiniband.enabled is retired: set agent.infiniband.resourceName",
    ),
    (
        "retired, and no switch any more",
        {"agent": {"infiniband": {"enabled": False, "resourceName": "rdma/hca"}}},
        "or these two to turn sweeps off",
    ),
    (
        "ports of nodes in the cluster alone",
        {"collector": {"service": {"nodePorts": {"grpcMtls": 30054}}}},
        "collector.service.nodePorts.grpcMtls: a Service of type ClusterIP has no port on nodes",
    ),
    (
        "gates in a dry run",
        {"gates": {"mode": "on"}, "publish": {"hyperNodes": "dry-run"}},
        'gates.mode: "on" needs publish.hyperNodes: publish',
    ),
    (
        "plans beside the settings",
        {"gates": {"mode": "on", "namespace": {"name": NAMESPACE}}},
        f"gates.namespace.name: {NAMESPACE} holds other objects",
    ),
    (
        "plans in kube-system",
        {"gates": {"mode": "on", "namespace": {"name": "kube-system"}}},
        "gates.namespace.name: kube-system holds other objects",
    ),
    (
        "a plan for no gang",
        {"gates": {"defragment": {"everySeconds": 10}}},
        "gates.defragment.everySeconds: only gangs behind gates are planned for",
    ),
    (
        "two sources of devices",
        {"agent": {"infiniband": {"resourceName": "rdma/hca", "resourceClaimTemplate": "rdma"}}},
        "agent.infiniband: give resourceName (a device plugin's) or resourceClaimTemplate",
    ),
    (
        "nodes without a device",
        {"agent": {"infiniband": {"nodeSelector": {"ib": "true"}}}},
        "agent.infiniband.nodeSelector has no effect alone",
    ),
    (
        "the default account",
        {"agent": {"serviceAccount": {"create": False}}},
        "every pod there could report",
    ),
]


@pytest.mark.parametrize(
    ("values", "named"), [case[1:] for case in TYPOS + TOGETHER], ids=[case[0] for case in TYPOS + TOGETHER]
)
def test_values_that_are_refused(values: dict[str, Any], named: str) -> None:
    done = helm_template(values)
    assert done.returncode != 0
    assert named in done.stderr


def test_helm_lints_it(bare: Cluster) -> None:
    chart = str(ROOT / "deploy" / "chart")
    for values in (PROFILES["default"], EVERYTHING):
        said = bare.helm("lint", chart, "--strict", "--values", "-", stdin=json.dumps(values))
        assert "0 chart(s) failed" in said


def test_a_packaged_chart_is_whole(bare: Cluster, tmp_path: Path) -> None:
    """Links out of the chart's folder are gone in the archive: the definition is in it."""
    bare.helm("package", str(ROOT / "deploy" / "chart"), "--destination", str(tmp_path))
    [archive] = tmp_path.glob("*.tgz")
    said = bare.helm("template", RELEASE, str(archive), "--kube-version", "1.36.0", "-n", NAMESPACE)
    found = one([o for o in yaml.safe_load_all(said) if o], "CustomResourceDefinition")
    source = yaml.safe_load((ROOT / "deploy" / "crd" / "hypernodes.yaml").read_text())
    assert found["spec"] == source["spec"]
    assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


Notes = Callable[[str], str]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "rollout status deployment/hyperscout-collector"),
        ({}, "https://localhost:50080/"),
        ({}, "port-forward pod/${leader%%_*} 50080"),
        (EVERYTHING, "https://map.example/"),
        ({"publish": {"hyperNodes": "dry-run"}}, "DRY RUN: the collector writes no HyperNode"),
        (
            {"tls": {"mode": "insecure"}, "authenticate": "none"},
            "WARNING: the collector does not authenticate clients",
        ),
        ({"tls": {"mode": "existingSecret"}}, "waits for the Secret hyperscout/hyperscout-tls"),
        ({"crds": {"install": False}}, "hyperscout crd columns"),
        (
            PROFILES["agents of another cluster"],
            "collector.example:50051, as nodes of cluster east.\n",
        ),
        ({"fabric": FABRIC}, "(in hyperscout: switches, ufm-login). To see its results and errors:"),
        ({"publish": {"taints": "on"}}, "An uninstall does not remove taints"),
        ({"publish": {"nodeConditions": "on"}}, "upgrade with publish.nodeConditions=off\n"),
        ({"publish": {"slinkyConfigMap": "default/x"}}, "upgrade with publish.slinkyConfigMap=\n"),
        (
            {
                "publish": {"nodeLabels": "on"},
                "collector": {"settings": {"node_label_keys": ["example.com/rack=leaf"]}},
            },
            "upgrade with publish.nodeLabels=off\n",
        ),
        (
            {},
            "If nodes have InfiniBand ports, set agent.infiniband.resourceName (the resource of an\n",
        ),
        (INFINIBAND, "daemonset/hyperscout-agent daemonset/hyperscout-agent-infiniband\n"),
        (INFINIBAND, "get nodes -l 'feature.node.kubernetes.io/pci-15b3.present=true'"),
        (
            {"agent": {"infiniband": {"resourceName": "rdma/hca", "enabled": True}}},
            "WARNING: agent.infiniband.enabled is retired and has no effect. Remove it.",
        ),
        (
            {
                "collector": {
                    "mtls": {"enabled": True, "clientCaSecret": "switches-ca"},
                    "service": {"type": "NodePort", "nodePorts": {"grpcMtls": 30054}},
                }
            },
            "50054, or 30054 of any node, with tls_ca: ca.crt of the Secret hyperscout-tls",
        ),
    ],
)
def test_notes_say_what_comes_next(bare: Cluster, values: dict[str, Any], said: str) -> None:
    assert said in install(bare, values, "--dry-run=client")
