"""Each rule that a tree may break, broken once."""

import pytest
from hyperscout_publish.hypernodes.checks import broken_rules
from hyperscout_publish.hypernodes.wanted import Wanted


def leaf(name: str, *nodes: str, tier: int = 1) -> Wanted:
    return Wanted(name, tier, "leaf", (), nodes, len(nodes))


def above(name: str, tier: int, *children: str) -> Wanted:
    return Wanted(name, tier, f"t{tier}", children, (), 1)


GOOD = (leaf("a", "n1"), leaf("b", "n2"), above("top", 2, "a", "b"))


def test_a_good_tree_breaks_none() -> None:
    assert not list(broken_rules(GOOD))
    assert not list(broken_rules(()))


@pytest.mark.parametrize(
    ("tree", "rule"),
    [
        ((*GOOD, leaf("a", "n9")), "two HyperNodes have the same name"),
        ((*GOOD, above("other", 2, "a")), "a has two parents, top and other"),
        ((leaf("a", "n1"), leaf("b", "n1")), "node n1 is in two HyperNodes, a and b"),
        ((above("top", 2, "a"),), "top has the child a, which does not exist"),
        ((leaf("a", "n1", tier=2), above("top", 2, "a")), "top (tier 2) is not above a (tier 2)"),
        ((above("p", 2, "q"), above("q", 2, "p")), "p (tier 2) is not above q (tier 2)"),
        ((above("p", 3, "q"), above("q", 2, "p")), "q (tier 2) is not above p (tier 3)"),
        ((leaf("a", "n1", tier=0),), "a has tier 0; expected 1 or more"),
        ((leaf("A_b", "n1"),), "'A_b' is not a valid name for a HyperNode"),
        ((leaf("a" * 64, "n1"),), f"{'a' * 64!r} is not a valid name for a HyperNode"),
        ((Wanted("a", 1, "leaf", (), (), 0),), "a has both nodes and children, or neither"),
        (
            (Wanted("a", 1, "x" * 254, (), ("n1",), 1),),
            "the tier name of a has 254 characters; expected at most 253",
        ),
        (
            (leaf("a", "n1"), Wanted("b", 1, "rack", (), ("n2",), 1)),
            "tier 1 has two names, 'leaf' and 'rack'",
        ),
        ((*GOOD, leaf("c", "n3")), "leaves have different depths: 0, 1"),
    ],
)
def test_a_broken_rule_is_named(tree: tuple[Wanted, ...], rule: str) -> None:
    assert rule in list(broken_rules(tree))
