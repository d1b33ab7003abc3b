"""A lab with real nodes, Ethernet and InfiniBand, in which a story may begin."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lab.cluster import Lab
from lab.images import images
from lab.infiniband import InfinibandFabric
from lab.plan import Plan
from lab.story import Story
from lab.wires import Wires

from support.waiting import TIMEOUT_S


@contextmanager
def wired_lab(folder: Path, plan: Plan, hold_down_s: float = 3.0) -> Iterator[Story]:
    """Start it, and end it with the block. After an exception the logs of the pods are printed.

    `hold_down_s`: see `Story`.
    """
    say = partial(print, flush=True)
    found = images(say)
    began_s = time.monotonic()
    with Lab(folder, images=[found.agent, found.collector], say=say) as lab:
        lab.add_nodes(plan.names)
        wires, infiniband = Wires(lab, plan), InfinibandFabric(lab, plan)
        wires.up()
        infiniband.up()
        lab.await_ready(plan.names, TIMEOUT_S)
        up_s = time.monotonic() - began_s
        say(f"{len(plan.names)} nodes and {len(plan.switches)} switches up: {up_s:.0f} s")
        story = Story(lab, wires, infiniband, say, hold_down_s)
        try:
            yield story
        except Exception:
            story.show_logs()
            raise
        finally:
            story.close()
            wires.down()
            infiniband.down()
