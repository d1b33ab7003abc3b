"""Clients of the API servers that the settings name."""

from pathlib import Path

import pytest
from hyperscout_collector.app.settings.configured import connected_clusters
from hyperscout_collector.app.settings.settings import load_settings
from hyperscout_runtime.errors import StartError

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: it, cluster: {{server: "https://{host}:6443"}}}}]
users: [{{name: me, user: {{token: secret}}}}]
contexts: [{{name: here, context: {{cluster: it, user: me}}}}]
current-context: here
"""


@pytest.mark.parametrize(("hosts", "is_refused"), [(("a", "b"), False), (("a", "a"), True)])
async def test_two_clusters_have_two_api_servers(
    tmp_path: Path, hosts: tuple[str, str], is_refused: bool
) -> None:
    entries = []
    for name, host in zip(("east", "west"), hosts, strict=True):
        (tmp_path / name).write_text(KUBECONFIG.format(host=host))
        entries.append(f"{name}={tmp_path / name}")
    settings = load_settings(flags={"kubernetes": "publish", "clusters": tuple(entries)})
    if is_refused:
        with pytest.raises(StartError, match="west and east have the API server https://a:6443"):
            await connected_clusters(settings)
    else:
        assert list(await connected_clusters(settings)) == ["east", "west"]


async def test_no_other_cluster_is_the_own_one(tmp_path: Path) -> None:
    (tmp_path / "west").write_text(KUBECONFIG.format(host="a"))
    flags = {"kubernetes": "publish", "clusters": (f"west={tmp_path / 'west'}",)}
    own = (await connected_clusters(load_settings(flags=flags)))["west"]
    with pytest.raises(StartError, match="west has the API server https://a:6443 of the own cluster"):
        await connected_clusters(load_settings(flags=flags), own)
    # The collector only elects a leader there.
    assert list(await connected_clusters(load_settings(flags=flags | {"kubernetes": "off"}), own)) == ["west"]
