"""Diagnoses on a node why it has no evidence: the `hyperscout doctor` command.

`facts` defines the collected values. `host`, `agent_page` and `reach` collect them. Collection has time
limits and works without privileges. `checks` and `way_checks` are pure and have one function for each
question. The doctor does not disturb the running agent.
"""
