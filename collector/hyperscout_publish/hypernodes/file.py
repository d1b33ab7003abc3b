"""Publishes HyperNodes as YAML for `kubectl apply -f`, to a file or to standard output."""

import sys
from pathlib import Path

from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.files import replace_file
from hyperscout_topology.topology import Topology

from hyperscout_publish.hypernodes.yaml_text import hypernodes_yaml
from hyperscout_publish.publisher.base import Publisher, PublishError

STDOUT = "-"


class FilePublisher(Publisher):
    """`path`: the file, or "-" for standard output. Readers see the old or the new file, never a part."""

    name = "file"

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._written: str | None = None
        self._in_thread = BoundedExecutor("publish-file")

    async def publish(self, topology: Topology) -> None:
        """Write the file if its text has changed. Raises PublishError."""
        await self._in_thread(self._publish, topology)

    def _publish(self, topology: Topology) -> None:
        text = "".join(hypernodes_yaml(topology))
        if text == self._written:
            return
        try:
            if self._path == STDOUT:
                # Each generation is a complete set of documents.
                sys.stdout.write(text if self._written is None else f"---\n{text}")
                sys.stdout.flush()
            else:
                replace_file(Path(self._path), text)
        except OSError as error:
            raise PublishError(f"{self._path}: {error.strerror or error}") from error
        self._written = text
