"""Facts that say the same are one object: a large cluster has millions of NVLinks, and few different ones."""

from hyperscout_formats.wire_measured import gpu_from_proto, gpu_to_proto
from hyperscout_sim.nvlink import dead_link, hgx_host


def test_links_and_peers_that_say_the_same_are_kept_once() -> None:
    hosts = [dead_link(hgx_host(name), 3, 5) for name in ("n1", "n2")]
    one, other = ([gpu_from_proto(gpu_to_proto(gpu)) for gpu in gpus] for gpus in hosts)
    assert [tuple(one), tuple(other)] == hosts
    links = [{id(x) for gpu in gpus for x in gpu.links} for gpus in (one, other)]
    assert links[0] == links[1]
    assert len(links[0]) == 18 + 1
    assert {id(x) for gpu in one for x in gpu.peers} == {id(x) for gpu in other for x in gpu.peers}
