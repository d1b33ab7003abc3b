"""What an operator lives through, from `helm install` to `helm uninstall`, on real nodes with real cables.

Each step does one thing to the cluster, waits for what `kubectl get hypernodes` must show, and says how long
that took. Nothing here looks into hyperscout: it types what a person would type, and reads what they would.
"""

import base64
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kube.pki import Authority

from lab import rights
from lab.cluster import Lab
from lab.infiniband import InfinibandFabric
from lab.watching import Object, StoryError, Watch, condition, essence, members
from lab.wires import Wires

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"
RELEASE = NAMESPACE = "hyperscout"
COLLECTOR, AGENT = f"{RELEASE}-collector", f"{RELEASE}-agent"
GRPC_PORT, MTLS_PORT, MTLS_NODE_PORT, REST_PORT = 50051, 50054, 30054, 50080
HYPERNODES = ("get", "hypernodes")
WITNESSES = {"lldp", "switch", "ibnetdiscover"}
_WATCH = (*HYPERNODES, "--watch", "--output-watch-events", "-o", "json")
STEADY_S = 2.0
_MEMBERSHIP_S = 12.0  # longer than a change of members must last before it is published
_STRANGER = "rack-17"
LOG_LINES = 25
_ROLLED_S = 300.0
_WAIT_S = 180.0
# The cluster's nodes keep their own pace; kubelets report each two seconds, and NotReady takes sixty.
_NODE_S = 180.0


class Story:
    """The steps, in order. `say` prints a line; `lab` is up, and nothing is installed. `hold_down_s`: the
    collector's."""

    def __init__(
        self,
        lab: Lab,
        wires: Wires,
        infiniband: InfinibandFabric,
        say: Callable[[str], None],
        hold_down_s: float,
    ) -> None:
        self._hold_down_s = hold_down_s
        self.lab, self.wires, self.infiniband = lab, wires, infiniband
        self.plan = wires.plan
        self._say = say
        self._began_s = time.monotonic()
        self._clients = Authority(lab.folder / "clients", "switches-ca")
        self._collector_ca = lab.folder / "collector-ca.crt"
        self._token, self._header = lab.folder / "viewer.token", lab.folder / "viewer.header"
        self._watch: Watch | None = None
        self._watches = itertools.count(1)

    # --- telling --------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        for line in text.splitlines():
            self._say(f"{time.monotonic() - self._began_s:6.1f} s  {line}")

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        self.say(f"== {title}")
        yield

    def show(self, *words: str) -> None:
        """A kubectl command and what it prints."""
        self.say(f"$ kubectl {' '.join(words)}")
        self.say(self.lab.kubectl(*words))

    @property
    def watch(self) -> Watch:
        assert self._watch is not None, "the story has not begun"
        return self._watch

    def took(self, what: str, seconds: float) -> None:
        self.say(f"{what}: {seconds:.1f} s")

    # --- looking --------------------------------------------------------------------------------------------

    def domain_of(self, node: str) -> str:
        """The tier-1 HyperNode that a node is in, "" where it is in none."""
        for name, one in self.watch.look().items():
            if one["spec"]["tier"] == 1 and node in members(one):
                return name
        return ""

    def domains(self) -> set[frozenset[str]]:
        return {members(one) for one in self.watch.look().values() if one["spec"]["tier"] == 1}

    def is_well(self, hypernodes: Mapping[str, Object]) -> bool:
        """Every HyperNode is Ready, and nothing else is said of any."""
        wanted = {"Ready": "True", "Degraded": "False", "Consistent": "True", "Stale": "False"}
        return bool(hypernodes) and all(essence(x)["conditions"] == wanted for x in hypernodes.values())

    def await_well(self, what: str, timeout_s: float = 300.0) -> None:
        """Until all is well, and stays so for a moment."""
        began_s = time.monotonic()
        while True:
            left_s = timeout_s - (time.monotonic() - began_s)
            self.watch.until(self.is_well, f"all is well {what}", left_s)
            well_s = time.monotonic() - began_s
            self.watch.steady(STEADY_S, timeout_s)
            if self.is_well(self.watch.look()):
                break
        self.took(f"all is well {what}", well_s)

    def await_condition(
        self, hypernode: Callable[[], str], kind: str, status: str, names: Sequence[str], timeout_s: float
    ) -> str:
        """Until a HyperNode has the condition, and its message names them all; returns the message."""

        def there(hypernodes: Mapping[str, Object]) -> str:
            found = condition(hypernodes.get(hypernode(), {}), kind)
            good = found.get("status") == status and all(name in found["message"] for name in names)
            return str(found["message"]) if good else ""

        message, seconds = self.watch.until(there, f"{kind}={status} naming {names}", timeout_s)
        self.took(f"{kind}={status}", seconds)
        self.say(f"   {message}")
        return str(message)

    @contextmanager
    def no_flap(self, during: str) -> Iterator[None]:
        """What happens inside must change no HyperNode, not even for a moment."""
        self.watch.look()
        since = self.watch.changes
        yield
        self.watch.steady(STEADY_S)
        if found := self.watch.flaps(since):
            raise StoryError(f"HyperNodes changed during {during}:\n" + "\n".join(found))
        self.say(f"no HyperNode changed: {during}")

    def pods(self, component: str) -> list[Object]:
        """Pods of `collector` or `agent` that are not on their way out."""
        found = self.lab.get("pods", "-n", NAMESPACE, "-l", f"app.kubernetes.io/component={component}")
        return [pod for pod in found["items"] if "deletionTimestamp" not in pod["metadata"]]

    def agent_on(self, node: str) -> str:
        return next(p["metadata"]["name"] for p in self.pods("agent") if p["spec"]["nodeName"] == node)

    def without_collector(self, *nodes: str) -> str:
        """The first of the nodes on which no collector runs."""
        taken = {pod["spec"]["nodeName"] for pod in self.pods("collector")}
        return next(node for node in nodes if node not in taken)

    def leader(self) -> str:
        """Name of the collector's pod that holds the Lease."""
        lease = self.lab.get("lease", COLLECTOR, "-n", NAMESPACE)
        return str(lease["spec"].get("holderIdentity") or "").partition("_")[0]

    @property
    def entries(self) -> tuple[str, ...]:
        """The nodes through which agents on switches reach the collector."""
        return self.plan.names[:2]

    def rolled(self) -> None:
        """Until all pods are there, in their present form."""
        for what in (f"deployment/{COLLECTOR}", f"daemonset/{AGENT}"):
            self.lab.kubectl(
                "rollout",
                "status",
                what,
                "-n",
                NAMESPACE,
                f"--timeout={_ROLLED_S:.0f}s",
                timeout_s=_ROLLED_S + 10,
            )

    # --- the steps ------------------------------------------------------------------------------------------

    def values(self) -> Object:
        """What this cluster's operator would put into values.yaml."""
        theirs = self.infiniband.values()
        agent = theirs["agent"]
        rails = "^rail[0-9]+$"
        settings = {
            **agent["settings"],
            # Cables that are veth are no physical ports for the agent: name them.
            "lldp": {"ports": rails},
            "latency": {"interfaces": rails},
        }
        return {
            "image": {"pullPolicy": "Never"},
            "collector": {
                # A shorter hold-down than usual: each step waits for the all-clear of the one before it.
                "settings": {"compute_ports": "^(rail[0-9]+|mlx5_[0-9]+)$", "hold_down_s": self._hold_down_s},
                "mtls": {"enabled": True, "clientCaSecret": "switches-ca"},
                "service": {"type": "NodePort", "nodePorts": {"grpcMtls": MTLS_NODE_PORT}},
            },
            "agent": {**agent, "settings": settings},
        }

    def install(self) -> None:
        with self.step("helm install"):
            began_s = time.monotonic()
            self.lab.kubectl("create", "namespace", NAMESPACE)
            self.lab.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged")
            self.lab.kubectl(
                "create",
                "secret",
                "generic",
                "switches-ca",
                "-n",
                NAMESPACE,
                f"--from-file=ca.crt={self._clients.cert}",
            )
            values = self.lab.folder / "values.yaml"
            values.write_text(json.dumps(self.values()))
            self.lab.helm(
                "install", RELEASE, str(CHART), "-n", NAMESPACE, "-f", str(values), timeout_s=_WAIT_S
            )
            self.rolled()
            self.took("helm install to all pods ready", time.monotonic() - began_s)
            self.show("get", "pods", "-n", NAMESPACE, "-o", "wide")
            self.look_anew()
            self.switch_agents()

    def look_anew(self) -> None:
        """Start the watch, or another one: it ends with the API server."""
        self.close()
        command = ["sh", "-c", 'exec "$@" 2>/dev/null', "sh", *self.lab.kubectl_command(), *_WATCH]
        output = self.lab.folder / "log" / f"hypernodes-{next(self._watches)}.json"
        self._watch = Watch(output, lambda out: self.lab.popen(command, out))

    def switch_agents(self) -> None:
        """The agents on the switches, which come in by the second port with certificates."""
        secret = self.lab.get("secret", f"{RELEASE}-tls", "-n", NAMESPACE)
        self._collector_ca.write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
        addresses = [f"{self.lab.nodes[name].ip}:{MTLS_NODE_PORT}" for name in self.entries]
        self.wires.agents_up(
            collectors=addresses,
            ca=self._collector_ca,
            server_name=f"{COLLECTOR}.{NAMESPACE}.svc",
            certificates=self._clients,
        )

    def discovered(self) -> None:
        with self.step("every node in its HyperNode, and the tier above"):
            wanted = set(self.plan.domains.values())

            def right(hypernodes: Mapping[str, Object]) -> bool:
                tiers = {one["spec"]["tier"] for one in hypernodes.values()}
                top = [members(one) for one in hypernodes.values() if one["spec"]["tier"] == 2]
                low = {name for name, one in hypernodes.items() if one["spec"]["tier"] == 1}
                return self.domains() == wanted and tiers == {1, 2} and top == [frozenset(low)]

            _, seconds = self.watch.until(right, f"domains {wanted} under one tier 2", _WAIT_S)
            self.took("pods ready to the right tree", seconds)
            self.await_well("after the install")
            self.show(*HYPERNODES)
        self.no_warnings("the install")

    def no_warnings(self, after: str) -> None:
        """A healthy start writes none."""
        found = []
        for pod in (*self.pods("collector"), *self.pods("agent")):
            words = ("logs", "-n", NAMESPACE, pod["metadata"]["name"], "--all-containers")
            found += [x for x in self.lab.kubectl(*words).splitlines() if " WARNING " in x or " ERROR " in x]
        if found:
            raise StoryError(f"warnings after {after}:\n" + "\n".join(found))

    @contextmanager
    def forwarded(self) -> Iterator[None]:
        """As the chart's notes say: a port-forward and a token of one's own; `ask` works inside."""
        self.make_token()
        words = ("port-forward", "-n", NAMESPACE, f"pod/{self.leader()}", str(GRPC_PORT), str(REST_PORT))
        forward = self.lab.popen(
            [*self.lab.kubectl_command(), *words], self.lab.folder / "log" / "port-forward"
        )
        try:
            yield
        finally:
            forward.kill()

    def make_token(self) -> None:
        """The token of an account that may look, as a file and as a header for curl."""
        self.lab.kubectl("create", "serviceaccount", "viewer")
        role_and_subject = ("--clusterrole=view", "--serviceaccount=default:viewer")
        self.lab.kubectl("create", "clusterrolebinding", "viewer", *role_and_subject)
        token = self.lab.kubectl("create", "token", "viewer", "--audience", "hyperscout").strip()
        for path, text in ((self._token, token), (self._header, f"Authorization: Bearer {token}\n")):
            path.touch(mode=0o600)
            path.write_text(text)

    def rest(self, host: str, path: str, *options: str, with_token: bool = True) -> str:
        """What REST answers. `host`: where the collector is reached."""
        header = ("-H", f"@{self._header}") if with_token else ()
        where = ("--cacert", str(self._collector_ca), "--connect-to", f"::{host}:{REST_PORT}")
        url = f"https://localhost:{REST_PORT}/{path}"
        return self.lab.run(["curl", "-sS", *where, *header, *options, url]).stdout

    def ask(self, *words: str) -> str:
        """What the command line prints, run as an operator would."""
        command = [ROOT / ".venv" / "bin" / "hyperscout", *words]
        where = ("--tls-ca", self._collector_ca, "--token-file", self._token)
        return self.lab.run([str(x) for x in (*command, *where)], timeout_s=_WAIT_S).stdout

    def look_around(self) -> None:
        with self.step("hyperscout tree, through a port-forward, with a token of a viewer"), self.forwarded():
            links = self.witnessed()
            self.say(self.ask("tree"))
            self.say(f"{len(links)} links, known from {', '.join(sorted(WITNESSES))}")
            self.map_is_served()
        self.await_well("with all witnesses heard")

    def witnessed(self) -> list[Object]:
        """All links, once they are known from where they must: nodes' ears, switches' agents, a sweep."""
        began_s = time.monotonic()
        cables = [cable for cable in self.plan.cables if self.wires.far_end(cable.a)]
        while True:
            links: list[Object] = json.loads(self.ask("get", "links", "-o", "json"))
            sources = {source for link in links for source in link["sources"]}
            both = [link for link in links if {"lldp", "switch"} & set(link["sources"])]
            if sources >= WITNESSES and len(both) == len(cables):
                return links
            if time.monotonic() - began_s > _WAIT_S:
                raise StoryError(f"{len(both)} of {len(cables)} Ethernet links, known from {sorted(sources)}")
            time.sleep(1.0)

    def map_is_served(self) -> None:
        """The map's pages are for every client, its data only for clients with the token."""
        named = {one["name"] for one in json.loads(self.rest("localhost", "v1/hypernodes"))["items"]}
        wanted = {one["metadata"]["name"] for one in self.lab.get("hypernodes")["items"]}
        refused = json.loads(self.rest("localhost", "v1/hypernodes", with_token=False))
        page = self.rest("localhost", "", with_token=False)
        served = "<title>hyperscout" in page or "make map" in page
        if named != wanted or refused["status"] != 401 or not served:
            raise StoryError(
                f"over HTTP: {named} for {wanted}; without a token {refused}; at / {page[:200]!r}"
            )

    def doctor(self, node: str) -> None:
        """What the agent's pod says of itself."""
        with self.step(f"hyperscout doctor in the agent's pod on {node}"):
            words = (
                "exec",
                "-n",
                NAMESPACE,
                self.agent_on(node),
                "-c",
                "agent",
                "--",
                "hyperscout",
                "doctor",
            )
            self.say(self.lab.kubectl(*words, check=False))
            found = json.loads(self.lab.kubectl(*words, "-o", "json", check=False))
            results = {check["check"].split()[0]: check["result"] for check in found["checks"]}
            for name in ("settings", "agent", "lldp", "token", "collector", "clock"):
                if results.get(name) != "ok":
                    raise StoryError(f"{name} is {results.get(name)}: {found['summary']}")

    def pods_are_confined(self) -> None:
        with self.step("what the pods may do"):
            for line in rights.check(self.lab, NAMESPACE, self.agent_on("node2"), self.leader()):
                self.say(line)

    def pull(self, cable: str, ends: Sequence[str], domain: Callable[[], str]) -> None:
        with self.step(f"pull the cable of {cable}"):
            self.wires.unplug(cable)
            self.await_condition(domain, "Degraded", "True", ends, _WAIT_S)
            self.show(*HYPERNODES)

    def plug(self, cable: str) -> None:
        with self.step(f"plug the cable of {cable} in again"):
            self.wires.plug(cable)
            self.await_well("after the cable is back")

    def pull_two(self, first: str, second: str) -> None:
        """Two dead cables of one pair of leaves move no host, and accuse no other cable."""
        home = self.domain_of("node1")
        with self.step(f"pull the cables of {first} and {second}"):
            before = self.domains()
            for cable in (first, second):
                self.wires.unplug(cable)
            message = self.await_condition(lambda: home, "Degraded", "True", [first, second], _WAIT_S)
            self.watch.steady(_MEMBERSHIP_S)
            hypernodes = self.watch.look()
            unlike = [
                name for name, one in hypernodes.items() if condition(one, "Consistent")["status"] != "True"
            ]
            if "2 of " not in message or unlike or self.domains() != before:
                raise StoryError(f"{message}; not consistent: {unlike}\n{self.watch.picture()}")
        with self.step("plug them in again"):
            for cable in (first, second):
                self.wires.plug(cable)
            self.await_well("after both cables are back")

    def stranger(self, node: str) -> None:
        """A HyperNode of another owner removes nothing of ours."""
        home = self.domain_of(node)
        with self.step(f"another owner's HyperNode with {node}"):
            member = {"type": "Node", "selector": {"exactMatch": {"name": node}}}
            body = {
                "apiVersion": "topology.volcano.sh/v1alpha1",
                "kind": "HyperNode",
                "metadata": {"name": _STRANGER},
                "spec": {"tier": 1, "members": [member]},
            }
            path = self.lab.folder / "stranger.json"
            path.write_text(json.dumps(body))
            before = set(self.watch.look()) | {_STRANGER}
            self.lab.kubectl("apply", "-f", str(path))
            self.await_condition(lambda: home, "Consistent", "False", [_STRANGER, node], _WAIT_S)
            self.watch.steady(_MEMBERSHIP_S)
            if set(self.watch.look()) != before or node not in members(self.watch.look()[home]):
                raise StoryError(f"it removed something\n{self.watch.picture()}")
            said = self.lab.kubectl(
                "get", "events", "-A", "--field-selector", f"involvedObject.name={_STRANGER}"
            )
            if "Overlap" not in said:
                raise StoryError(f"no Event on {_STRANGER}:\n{said}")
            self.lab.kubectl("delete", "hypernode", _STRANGER)
            self.await_well("after it is gone")

    def move_both_rails(self, node: str) -> None:
        here, there = self.domain_of(node), self.domain_of("node4")
        home = {port: self.wires.far_end(f"{node}/{port}") for port in ("rail0", "rail1")}
        with self.step(f"move {node}/rail0 to the other pair's leaf"):
            self.wires.move(f"{node}/rail0", "leaf-b1/swp20")
            self.await_condition(lambda: here, "Consistent", "False", [f"{node}/rail0"], _WAIT_S)
            if self.domain_of(node) != here:
                raise StoryError(f"{node} left its domain for one cable\n{self.watch.picture()}")
            self.say(f"{node} stays in {here}")
        with self.step(f"move {node}/rail1 and its InfiniBand cable as well"):
            self.wires.move(f"{node}/rail1", "leaf-b2/swp20")
            self.infiniband.move(node, "ib-leaf-b")
            _, seconds = self.watch.until(
                lambda _: self.domain_of(node) == there, f"{node} in {there}", _WAIT_S
            )
            self.took("a node changes its domain", seconds)
            self.await_well("after the move")
            self.show(*HYPERNODES)
        with self.step(f"move {node} back"):
            for port, end in home.items():
                self.wires.move(f"{node}/{port}", end)
            self.infiniband.move(node, "ib-leaf-a")
            self.watch.until(lambda _: self.domain_of(node) == here, f"{node} back in {here}", _WAIT_S)
            self.await_well("after the move back")

    def kill_node(self, node: str) -> None:
        domain = self.domain_of(node)
        with self.step(f"cut the power of {node}"):
            self.power_off(node)
            self.await_condition(lambda: domain, "Ready", "False", [node], _NODE_S)
            self.show(*HYPERNODES)
        self.kill_leader(without=node)
        with self.step(f"power for {node}"):
            self.power_on(node)
            self.rolled()
            self.await_reports()
            self.await_well(f"after {node} is back")

    def power_off(self, node: str) -> None:
        self.lab.kill_node(node)
        self.wires.disconnect(node)
        self.infiniband.disconnect(node)

    def power_on(self, node: str) -> None:
        """Back when its kubelet runs."""
        self.lab.revive_node(node)
        self.wires.connect(node)
        self.infiniband.connect(node)

    def delete_at_once(self, pod: str) -> None:
        self.lab.kubectl("delete", "pod", pod, "-n", NAMESPACE, "--grace-period=0", "--force")

    def kill_agent(self, node: str) -> None:
        """Kill all processes of the agent on a node."""
        self.lab.nodes[node].run(["pkill", "-KILL", "-f", "hyperscout agent|lldp.listener"], check=False)

    def kill_leader(self, without: str = "") -> None:
        """`without`: a node that has no power."""
        with self.step(f"kill the collector that leads{f' while {without} is dead' if without else ''}"):
            before = self.leader()
            with self.no_flap("the fail-over"):
                began_s = time.monotonic()
                self.delete_at_once(before)
                while (after := self.leader()) in ("", before):
                    if time.monotonic() - began_s > _WAIT_S:
                        raise StoryError("no replica took over")
                    time.sleep(0.2)
                self.took("another collector leads", time.monotonic() - began_s)
                self.say(f"{before} -> {after}")
                self.await_reports(but=without)
                if without:
                    self.watch.steady(_MEMBERSHIP_S)
            if not without:
                self.rolled()

    def kill_agents(self) -> None:
        with self.step("kill all agents with SIGKILL"), self.no_flap("the agents' death"):
            began_s = time.monotonic()
            restarts = self.restarts()
            for node in self.lab.nodes:
                self.kill_agent(node)
            while self.restarts() < restarts + 2 * len(self.lab.nodes):
                if time.monotonic() - began_s > _WAIT_S:
                    raise StoryError("the containers were not started again")
                time.sleep(0.2)
            self.rolled()
            self.await_reports()
            self.took("all agents back", time.monotonic() - began_s)

    def restarts(self) -> int:
        return sum(
            s["restartCount"] for p in self.pods("agent") for s in p["status"].get("containerStatuses", ())
        )

    def await_reports(self, but: str = "") -> None:
        """Until every agent's stream is up again, by its own word. `but`: a node without power."""
        began_s = time.monotonic()
        for name, node in self.lab.nodes.items():
            while name != but and b"ok, connected" not in self.health(name):
                if time.monotonic() - began_s > _WAIT_S:
                    raise StoryError(f"the agent of {node.name} does not reach the collector")
                time.sleep(0.2)

    def health(self, node: str) -> bytes:
        """The agent's /healthz, asked on the node itself, where alone it listens."""
        done = self.lab.nodes[node].run(
            ["curl", "-s", "-m", "5", "http://127.0.0.1:50053/healthz"], check=False
        )
        return done.stdout.encode()

    def add_node(self, node: str) -> None:
        with self.step(f"a new node: {node}"):
            began_s = time.monotonic()
            self.lab.add_node(node)
            self.wires.connect(node)
            self.infiniband.connect(node)
            self.lab.await_ready([node], _NODE_S)
            self.watch.until(
                lambda _: self.domain_of(node) == self.domain_of("node1"), f"{node} beside node1", _WAIT_S
            )
            self.took("a new machine to its place in the tree", time.monotonic() - began_s)
            self.await_well("with the new node")
            self.show(*HYPERNODES)

    def change(self, *settings: str) -> None:
        """Change values of the chart, and wait until all pods run with them."""
        words = [word for setting in settings for word in ("--set", setting)]
        keep = ("-n", NAMESPACE, "--reset-then-reuse-values")
        self.lab.helm("upgrade", RELEASE, str(CHART), *keep, *words, timeout_s=_WAIT_S)
        self.rolled()

    def upgrade(self) -> None:
        with self.step("helm upgrade with changed values"), self.no_flap("the rolling upgrade"):
            began_s = time.monotonic()
            before = {p["metadata"]["name"] for p in (*self.pods("agent"), *self.pods("collector"))}
            self.change("agent.settings.refresh_interval_s=45", "collector.settings.refresh_s=29")
            after = {p["metadata"]["name"] for p in (*self.pods("agent"), *self.pods("collector"))}
            if kept := before & after:
                raise StoryError(f"not rolled: {sorted(kept)}")
            self.await_reports()
            self.took("all pods rolled", time.monotonic() - began_s)

    def uninstall(self) -> None:
        with self.step("helm uninstall"):
            names = set(self.watch.look())
            self.lab.helm("uninstall", RELEASE, "-n", NAMESPACE, "--wait", "--timeout", "180s", timeout_s=190)
            self.wires.agents_down()
            left = self.lab.get("all,configmaps,secrets,roles,rolebindings,serviceaccounts", "-n", NAMESPACE,
                                "-l", f"app.kubernetes.io/instance={RELEASE}")["items"]  # fmt: skip
            if left:
                raise StoryError(f"left behind: {[(x['kind'], x['metadata']['name']) for x in left]}")
            there = {x["metadata"]["name"] for x in self.lab.get("hypernodes")["items"]}
            if there != names:
                raise StoryError(f"HyperNodes stay, as the documents say; here went or came {there ^ names}")
            self.show(*HYPERNODES)
            self.say("HyperNodes and their definition stay until they are deleted:")
            self.show("delete", "hypernodes", "-l", "app.kubernetes.io/managed-by=hyperscout")

    def tell(self) -> None:
        """All of it."""
        self.install()
        self.discovered()
        self.look_around()
        self.doctor("node2")
        self.pods_are_confined()
        home = self.domain_of("node1")
        self.pull("node1/rail0", ["node1/rail0", self.wires.far_end("node1/rail0")], lambda: home)
        self.plug("node1/rail0")
        self.pull_two("node1/rail1", "node3/rail0")
        self.stranger("node5")
        self.move_both_rails("node2")
        self.kill_node(self.without_collector("node3", "node5", "node6"))
        self.kill_leader()
        self.kill_agents()
        self.add_node("node7")
        self.upgrade()
        self.uninstall()
        self.say("== the story is told")

    def show_logs(self) -> None:
        """The end of what the pods said, for the reader of a failure."""
        for pod in (*self.pods("collector"), *self.pods("agent")):
            for container in pod["spec"]["containers"]:
                self.say(f"-- {pod['spec'].get('nodeName')}: {pod['metadata']['name']}/{container['name']}")
                words = ("logs", "-n", NAMESPACE, pod["metadata"]["name"], "-c", container["name"])
                self.say(self.lab.kubectl(*words, f"--tail={LOG_LINES}", check=False))

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
