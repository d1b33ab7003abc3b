"""Places gangs of workers on the topology. The computation is pure, exact and can be explained.

    Topology -> Forest ----\\
    free resources -> Capacity -> place(request) -> Placement | Refusal -> explain, repair, defragment
"""
