"""Puts gangs of workers onto the hierarchy: pure, exact, and able to say why.

    Topology -> Forest ----\\
    free resources -> Capacity -> place(request) -> Placement | Refusal -> explain, repair, defragment
"""
