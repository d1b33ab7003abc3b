"""`-o dot`: the graph is valid DOT, each domain is a cluster, and a large graph is bounded."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hyperscout_cli.shared import dot as module
from hyperscout_cli.shared.dot import dot
from hyperscout_topology import objects
from hyperscout_topology.topology import Link, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.builders import hypernode
from support.topologies import pods, two_leaves

# Tokens of DOT that the writer uses: https://graphviz.org/doc/info/lang.html
_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|(--|[{}\[\];,=])|([A-Za-z_]\w*))', re.ASCII)


@dataclass
class Graph:
    """What a parser of DOT finds. `parents`: cluster by cluster or node; `labels` by cluster or node."""

    parents: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    edges: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)


def parsed(text: str) -> Graph:
    """Parse by the grammar's rules for graph, stmt_list, attr_list, edge_stmt, node_stmt and subgraph."""
    tokens = list(tokens_of(text))[::-1]
    graph = Graph()

    def take(*expected: str) -> str:
        token = tokens.pop()
        assert not expected or token in expected, (token, expected)
        return token

    def ident() -> str:
        token = take()
        assert token.startswith('"') or token.isidentifier(), token
        return token[1:-1].replace('\\"', '"').replace("\\\\", "\\") if token.startswith('"') else token

    def attributes() -> dict[str, str]:
        found = {}
        if tokens[-1] == "[":
            take("[")
            while True:
                name = ident()
                take("=")
                found[name] = ident()
                if take(",", "]") == "]":
                    break
        return found

    def statements(cluster: str) -> None:
        take("{")
        while tokens[-1] != "}":
            first = ident()
            if first == "subgraph":
                name = ident()
                graph.parents[name] = cluster
                statements(name)
                continue
            if first in {"graph", "node"}:
                attributes()
            elif tokens[-1] == "=":
                take("=")
                assert first == "label"
                graph.labels[cluster] = ident()
            elif tokens[-1] == "--":
                take("--")
                graph.edges.append((first, ident(), attributes()))
            else:
                assert first not in graph.parents, "a node is declared once"
                graph.parents[first] = cluster
                graph.labels[first] = attributes()["label"]
            take(";")
        take("}")

    take("graph")
    statements(ident())
    assert not tokens
    return graph


def tokens_of(text: str) -> Iterator[str]:
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        assert match, text[at : at + 50]
        yield match[0].strip()
        at = match.end()


def inside(graph: Graph, name: str) -> list[str]:
    """The labels of the clusters around a node, from the inside."""
    found = []
    while (name := graph.parents[name]) != "hyperscout":
        found.append(graph.labels[name])
    return found


def wired() -> Topology:
    """`two_leaves` with the ids of its switches in its HyperNodes, and two cables between two devices."""
    topology = two_leaves()
    own = {"leaf-a": ("s1",), "leaf-b": ("s2",), "core": ("s1", "s2", "s9")}
    return replace(
        topology,
        hypernodes=tuple(replace(h, switches=own[h.name]) for h in topology.hypernodes),
        links=(*topology.links, Link("s9", "3", "s1", "10", "ib", ("ibnetdiscover",))),
    )


def test_each_domain_is_a_cluster_with_its_devices() -> None:
    graph = parsed("".join(dot(wired())))
    leaf, core = "leaf-a (tier 1 leaf)", "core (tier 2 core)"
    assert inside(graph, "node:n01") == inside(graph, "device:s1") == [leaf, core]
    assert inside(graph, "device:s9") == [core]
    assert graph.labels["device:s9"] == "spine"
    edges = {frozenset((a, b)): labels for a, b, labels in graph.edges}
    assert edges[frozenset(("device:s1", "device:s9"))] == {"label": "2x"}
    assert edges[frozenset(("node:n01", "device:s1"))] == {}
    assert len(edges) == len(graph.edges) == 5


def test_links_are_drawn_with_their_ports_and_nothing_else() -> None:
    links = [x for x in objects.links(wired()) if "s9" in (x["a"]["device"], x["b"]["device"])]
    graph = parsed("".join(dot(wired(), links)))
    devices = {name for name in graph.parents if ":" in name}
    assert devices == {"device:s1", "device:s2", "device:s9"}
    ports = sorted((labels["taillabel"], labels["headlabel"]) for _, _, labels in graph.edges)
    assert ports == [("3", "10"), ("9", "1"), ("9", "2")]


def test_the_ends_of_links_may_be_in_no_domain() -> None:
    stray = replace(wired(), hypernodes=())
    graph = parsed("".join(dot(stray)))
    assert graph.labels["device:s9"] == "spine"
    assert graph.parents["node:n01"] == "hyperscout"


@given(st.text(min_size=1), st.text(), st.text(min_size=1))
def test_any_names_are_valid_and_stay_apart(name: str, port: str, other: str) -> None:
    link = Link(name, port, "sw", port, "x", ("lldp",))
    topology = Topology(1, (hypernode(other, [name]),), links=(link,))
    for text in (dot(topology), dot(topology, objects.links(topology))):
        graph = parsed("".join(text))
        assert len(graph.edges) == 1
        assert {a for edge in graph.edges for a in edge[:2]} <= graph.parents.keys()


def test_the_hosts_of_a_large_topology_are_one_box_a_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HOSTS", 7)
    graph = parsed("".join(dot(pods(2, nodes=4))))
    hosts = [graph.labels[name] for name in graph.parents if name.startswith("nodes:")]
    assert len(hosts) == 2
    assert all(text.startswith("4 nodes: ") for text in hosts)


@pytest.mark.parametrize(
    ("limit", "left_out"),
    [("MAX_CLUSTERS", "2 domains"), ("MAX_BOXES", "6 devices"), ("MAX_EDGES", "4 connections")],
)
def test_a_graph_is_bounded_and_says_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, limit: str, left_out: str
) -> None:
    monkeypatch.setattr(module, limit, 1)
    graph = parsed("".join(dot(wired())))
    assert graph.labels["hyperscout"] == f"left out: {left_out}"
