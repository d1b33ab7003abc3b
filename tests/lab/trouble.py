"""Random faults on real nodes, while an oracle that knows what was done looks at what is shown.

Cables are pulled, switches and nodes lose their power, nodes are plugged in elsewhere; leaders, agents and
the API server are killed. In between all is mended, and the true picture must be back.
"""

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from lab.inside import CommandError
from lab.oracle import Fault, Oracle, Seen
from lab.plan import IB_DEVICE, LEAF_SPARE, device_of, make_plan
from lab.story import Story
from lab.watching import Object, StoryError

# Two pods of two units: three tiers, in Ethernet and in InfiniBand.
PLAN = make_plan(
    {"a": ("node1", "node2"), "b": ("node3",), "c": ("node4", "node5"), "d": ("node6",)},
    {},
    (("a", "b"), ("c", "d")),
)
_ROUND_S = 60.0  # of faults, before all is mended
_SETTLED_S = 300.0  # until the tree is there for the first time
_MOST = 4  # faults at a time
_LASTS_S = (2.0, 15.0)
_NODE_LASTS_S = (10.0, 30.0)
_PAUSE_S = (0.2, 3.0)
_OUTAGE_S = (1.0, 6.0)
_TAKES_OVER_S = 15.0  # the Lease expires after 8 s, and agents need some to come to the new leader
_WITHOUT_A_NODE_S = 10.0  # a new leader waits so long for the agent of a dead node
_DEAD_WAY_S = 35.0  # until an agent on a switch gives up a connection through a dead node
_LOOK_S = 0.25
_LONG_S = 12.0  # a fault that lasts so long must be shown


@dataclass(slots=True)
class _Open:
    """A fault that lasts until `until_s`. `mend` undoes it."""

    fault: Fault
    what: str
    until_s: float
    mend: Callable[[], None]


class Trouble:
    """`story`: its lab, its wires and its InfiniBand are up. `limit_s`: see `Oracle`. `within_s`: after the
    last fault the true picture is back within this time."""

    def __init__(self, story: Story, rng: Random, limit_s: float, within_s: float) -> None:
        self.story, self.lab, self.wires = story, story.lab, story.wires
        self.infiniband, self.plan = story.infiniband, story.plan
        self.oracle = Oracle(self.plan, limit_s)
        self.done: Counter[str] = Counter()
        self.looks: Counter[str] = Counter()  # how often what was seen
        self.back_s: list[float] = []  # how long it took after each round
        self._rng, self._within_s = rng, within_s
        self._open: list[_Open] = []
        self._seen: tuple[float, Seen] | None = None  # with the time before the look
        self._looking = threading.Event()  # cleared: the API server is down
        self._over = threading.Event()
        self._leader_ip = ""
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._judging = False  # from the first true picture on

    # --- the whole ------------------------------------------------------------------------------------------

    def tell(self, seconds: float) -> None:
        """Faults for that long, in rounds. Raises StoryError for what was not true."""
        self.story.install()
        self.story.make_token()
        with self._watching():
            self.await_truth("for the first time", _SETTLED_S)
            self._judging = True
            until_s = time.monotonic() + seconds
            while (now_s := time.monotonic()) < until_s:
                self.rage(min(until_s, now_s + _ROUND_S))
                self.mend_all()
                self.back_s.append(self.await_truth("after all is mended", self._within_s))
        self.story.say(f"{dict(self.done)}; looks: {dict(self.looks)}")
        self._check_shown()
        self.story.say(f"the true picture was back after {[f'{x:.1f} s' for x in self.back_s]}")
        worst = self.oracle.worst
        self.story.say(
            f"the longest false claim: {self.oracle.worst_s:.1f} s{f' ({worst})' if worst else ''}"
        )

    def _check_shown(self) -> None:
        """Raises StoryError if less than three of four long faults were shown. Some are hidden by others."""
        long = [x for x in self.oracle.faults if (x.ended_s or 0.0) - x.began_s >= _LONG_S]
        shown = sum(x.is_shown for x in long)
        self.story.say(f"{shown} of {len(long)} faults of {_LONG_S:g} s and more were shown")
        if 4 * shown < 3 * len(long):
            raise StoryError("not shown: " + "; ".join(str(sorted(x.parts)) for x in long if not x.is_shown))

    def rage(self, until_s: float) -> None:
        """Break and mend until that time: after four small faults comes a rare one."""
        acts = itertools.cycle(self._rng.sample(self._rare, len(self._rare)))
        while time.monotonic() < until_s:
            for small in self._rng.choices(self._small, [6, 3, 2], k=4):
                self._act(small)
            self._act(next(acts))

    @property
    def _small(self) -> Sequence[Callable[[], bool]]:
        return (self.pull_ethernet, self.pull_infiniband, self.switch_off)

    @property
    def _rare(self) -> Sequence[Callable[[], bool]]:
        return (self.kill_node, self.kill_leader, self.kill_apiserver, self.kill_agents, self.move_node)

    def _act(self, act: Callable[[], bool]) -> None:
        self.check()
        for one in [x for x in self._open if x.until_s <= time.monotonic()]:
            self._mend(one)
        while len(self._open) >= _MOST:
            self._mend(min(self._open, key=lambda x: x.until_s))
        if act():
            self.done[act.__name__] += 1
        time.sleep(self._rng.uniform(*_PAUSE_S))

    def mend_all(self) -> None:
        while self._open:
            self._mend(self._open[0])
        self.story.rolled()
        self.story.await_reports()

    def _mend(self, one: _Open) -> None:
        self._open.remove(one)
        self.story.say(f"mend: {one.what}")
        one.mend()
        with self._lock:
            self.oracle.end(one.fault, time.monotonic())

    def check(self) -> None:
        """Raises StoryError if something was not true."""
        if self._error is not None:
            raise self._error
        if self.oracle.violations:
            raise StoryError("\n".join(self.oracle.violations))

    def await_truth(self, what: str, timeout_s: float) -> float:
        """Wait until the whole picture is right, and return the seconds."""
        began_s = time.monotonic()
        last: list[str] = []
        while True:
            with self._lock:
                looked_s, seen = self._seen or (0.0, None)
                now_s = time.monotonic()
                is_new = seen is not None and looked_s > began_s
                wrong = self.oracle.wrong(seen) if seen is not None and is_new else ["nothing was seen"]
            if not wrong:
                self.story.took(f"the true picture {what}", now_s - began_s)
                for text in last:
                    self.story.say(f"   at last: {text}")
                return now_s - began_s
            last = wrong
            self.check()
            if now_s - began_s > timeout_s:
                raise StoryError(f"not within {timeout_s:g} s {what}:\n" + "\n".join(wrong))
            time.sleep(_LOOK_S)

    # --- looking --------------------------------------------------------------------------------------------

    @contextmanager
    def _watching(self) -> Iterator[None]:
        self._looking.set()
        thread = threading.Thread(target=self._watch_on, name="oracle")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._looking.set()
            thread.join()
        self.check()

    def _watch_on(self) -> None:
        try:
            while not self._over.is_set():
                if self._looking.is_set():
                    self._look()
                time.sleep(_LOOK_S)
        except Exception as error:
            self._error = error

    def _look(self) -> None:
        looked_s = time.monotonic()
        answer = self._anomalies()
        anomalies, generation = (answer["items"], int(answer["generation"])) if answer else (None, None)
        self.looks["anomalies" if answer else "no leader"] += 1
        with self._lock:
            if not self._looking.is_set():
                return
            self.story.watch.check()
            seen = Seen(dict(self.story.watch.look()), anomalies, generation)
            self._seen = looked_s, seen
            if self._judging:
                self.oracle.judge(seen, time.monotonic())
                for line in self.oracle.news:
                    self.story.say(line)
                self.oracle.news.clear()

    def _anomalies(self) -> Object | None:
        """The anomalies and the number of their generation, None where no leader answers."""
        try:
            if not self._leader_ip:
                leader = self.story.leader()
                ips = [x["status"].get("podIP", "") for x in self.story.pods("collector")
                       if x["metadata"]["name"] == leader]  # fmt: skip
                self._leader_ip = ips[0] if ips else ""
                if not self._leader_ip:
                    return None
            answer: Object = json.loads(self.story.rest(self._leader_ip, "v1/anomalies", "-m", "2"))
        except (CommandError, json.JSONDecodeError, KeyError):
            answer = {}
        if "items" not in answer:
            self._leader_ip = ""
        return answer if "items" in answer else None

    # --- acts: each returns whether it was done -------------------------------------------------------------

    def _fault(
        self,
        what: str,
        parts: Sequence[str],
        do: Callable[[], None],
        mend: Callable[[], None],
        lasts_s: tuple[float, float] = _LASTS_S,
    ) -> bool:
        """Do what makes these parts dead, for some time."""
        with self._lock:
            fault = self.oracle.begin("dead", parts, time.monotonic())
        self.story.say(f"break: {what}")
        do()
        self._open.append(_Open(fault, what, time.monotonic() + self._rng.uniform(*lasts_s), mend))
        return True

    def _whole(self, ports: Sequence[str]) -> list[str]:
        """Return those of these parts that no open fault has broken."""
        broken = {part for one in self._open for part in one.fault.parts}
        return [port for port in ports if port not in broken and device_of(port) not in broken]

    def _cables_of(self, device: str) -> list[str]:
        """Both ends of each of its Ethernet cables, and its adapter's if it is a node."""
        names = [f"{device}/{port}" for port in self.wires.panel.ports_of(device)]
        ends = [end for port in names if (far := self.wires.far_end(port)) for end in (port, far)]
        return [*ends, *self._adapter(device)] if device in self.plan else ends

    def _adapter(self, node: str) -> tuple[str, str]:
        return f"{node}/{IB_DEVICE}", self.infiniband.far_end(node)

    def pull_ethernet(self) -> bool:
        ports = [cable.a for cable in self.plan.cables]
        ports = [port for port in self._whole(ports) if self._whole([self.wires.far_end(port)])]
        if not ports:
            return False
        port = self._rng.choice(ports)
        far = self.wires.far_end(port)
        return self._fault(
            f"the cable {port} -- {far}",
            (port, far),
            lambda: self.wires.unplug(port),
            lambda: self.wires.plug(port),
        )

    def pull_infiniband(self) -> bool:
        nodes = self._whole([f"{node}/{IB_DEVICE}" for node in self.plan.names])
        if not nodes:
            return False
        node = device_of(self._rng.choice(nodes))
        return self._fault(
            f"the InfiniBand cable of {node}",
            self._adapter(node),
            lambda: self.infiniband.unplug(node),
            lambda: self.infiniband.plug(node),
        )

    def switch_off(self) -> bool:
        switches = self._whole([one.name for one in self.plan.switches])
        if len(switches) < len(self.plan.switches):  # one at a time
            return False
        name = self._rng.choice(switches)

        def mend() -> None:
            self.wires.up_switch(name)
            self.wires.switches[name].start_agent_again()

        return self._fault(
            f"the power of {name}", (name, *self._cables_of(name)), lambda: self.wires.down_switch(name), mend
        )

    def kill_node(self) -> bool:
        nodes = [node for node in self.plan.names if all(map(self._is_free, (node, *self._cables_of(node))))]
        if len(self.lab.nodes) < len(self.plan.names) or not nodes:
            return False
        node = self._rng.choice(nodes)

        def mend() -> None:
            self.story.power_on(node)
            self.lab.await_ready([node], _SETTLED_S)
            self.story.await_reports()

        def power_off() -> None:
            leads = self._runs_on(self.story.leader()) == node
            self.story.power_off(node)
            if node in self.story.entries:
                self.story.say("the agents on switches reach the collector through it")
                self._lose_leader(_DEAD_WAY_S)
            elif leads:
                self.story.say("the leader ran there")
                self._lose_leader(_WITHOUT_A_NODE_S)

        parts = (node, *self._cables_of(node))
        return self._fault(f"the power of {node}", parts, power_off, mend, _NODE_LASTS_S)

    def _runs_on(self, collector: str) -> str:
        pods = {pod["metadata"]["name"]: pod for pod in self.story.pods("collector")}
        return str(pods[collector]["spec"].get("nodeName", "")) if collector in pods else ""

    def _is_free(self, part: str) -> bool:
        return bool(self._whole([part]))

    def move_node(self) -> bool:
        """A node that is not alone in its unit goes to the other unit of its pod, or back home."""
        unit_of = {node: unit for unit, nodes in self.oracle.nodes.items() for node in nodes}
        away = [node for node in self.plan.names if unit_of[node] != self.plan.node(node).unit]
        at_home = [node for node in self.plan.names if len(self.oracle.nodes[unit_of[node]]) > 1]
        nodes = [n for n in away or at_home if all(map(self._is_free, (n, *self._cables_of(n))))]
        if not nodes:
            return False
        node = self._rng.choice(nodes)
        home = self.plan.node(node).unit
        pod = next(pod for pod in self.plan.pods if home in pod)
        unit = home if away else next(one for one in pod if one != home)
        place = f"swp{self.plan.node(node).place}" if away else LEAF_SPARE[0]
        ports = {f"{node}/{rail}": f"leaf-{unit}{n}/{place}" for n, rail in enumerate(self._rails(node), 1)}
        if not all(self._is_free(device_of(end)) for end in ports.values()):
            return False
        self.story.say(f"move {node} to unit {unit}")
        parts = [*self._cables_of(node), *ports.values()]
        with self._lock:
            faults = [
                self.oracle.begin("dead", parts, time.monotonic()),
                self.oracle.begin("elsewhere", [node, *parts], time.monotonic()),
            ]
            self.oracle.move(node, unit)
        for port, end in ports.items():
            self.wires.move(port, end)
        self.infiniband.move(node, f"ib-leaf-{unit}")
        with self._lock:
            for fault in faults:
                self.oracle.end(fault, time.monotonic())
        return True

    def _rails(self, node: str) -> tuple[str, ...]:
        return self.plan.node(node).rails

    def kill_leader(self) -> bool:
        """Kill it only where another collector is ready, because only that one has followed it."""
        ready = [
            pod["metadata"]["name"]
            for pod in self.story.pods("collector")
            if pod["spec"].get("nodeName") in self.lab.nodes
            and ("Ready", "True") in [(c["type"], c["status"]) for c in pod["status"].get("conditions", ())]
        ]
        leader = self.story.leader()
        if leader not in ready or len(ready) < 2:
            return False
        self.story.say(f"kill: {leader}, which leads")
        self.story.delete_at_once(leader)
        self._lose_leader()
        return True

    def _lose_leader(self, more_s: float = 0.0) -> None:
        with self._lock:
            self.oracle.no_leader(time.monotonic() + _TAKES_OVER_S + more_s)

    def kill_agents(self) -> bool:
        node = self._rng.choice(list(self.lab.nodes))
        self.story.say(f"kill: the agent on {node}")
        self.story.kill_agent(node)
        return True

    def kill_apiserver(self) -> bool:
        control = self.lab.control
        assert control is not None
        self.story.say("kill: the API server")
        with self._lock:
            self._looking.clear()
            names = self.story.watch.look().keys()
        control.kill_apiserver()
        time.sleep(self._rng.uniform(*_OUTAGE_S))
        control.start_apiserver()
        self._lose_leader()
        self.story.look_anew()
        self.story.watch.until(lambda now: now.keys() >= names, "all HyperNodes after the outage")
        self._looking.set()
        return True
