"""Why a node has no evidence: what `hyperscout doctor` looks at on the node itself.

`facts` says what is collected, `host`, `agent_page` and `reach` collect it (thin, bounded in time, without
rights if need be), and `checks` judges it: pure, one function a question. Nothing here disturbs the agent.
"""
