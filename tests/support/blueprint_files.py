"""Blueprints of the two leaves of support.topologies, and what a comparison prints."""

from pathlib import Path

HOLDS = """\
# Hall 1
switches: [leaf-a, leaf-b, spine]
patterns:
- name: hosts
  for: {n: 1-2}
  link: n0{n}/mlx5_0 -> leaf-a/p{n}
links:
- n04/mlx5_0 -> leaf-b/p2
- leaf-a/p9 -> spine/p1
- leaf-b/p9 -> spine/p2
"""
DIFFERS = HOLDS.replace("n04/mlx5_0 -> leaf-b/p2", "n04/mlx5_0 -> leaf-b/p1").replace("1-2}", "1-3}")
LINES = [
    "- no cable from n03/mlx5_0 to leaf-a/p3; the blueprint has one",
    "~ n04/mlx5_0 is plugged into leaf-b/p2; the blueprint has n04/mlx5_0 -> leaf-b/p1",
]


def plan(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    return path
