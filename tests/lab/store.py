"""What containerd makes of images, made once for all nodes: each begins with a copy.

To unpack hyperscout's own two images takes a node five seconds of a processor; to copy what came of it takes
a tenth of that. Files are copied as further names of the same ones, for containerd only ever adds and removes
files. Its databases are the exception.
"""

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from lab.inside import CommandError, LabError, Place

SOCKET = "run/containerd/containerd.sock"
START_S = 240.0
_IMPORT_S = 180.0
_COPY_S = 60.0
_LOOK_EVERY_S = 0.05
_LIST = "images.json"  # what is in there
# Nothing runs on this containerd.
_OFF = ("io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")


class ImageStore:
    """In a folder of a lab. A process that attaches to the lab finds it filled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fill(self, place: Place, images: Sequence[Path], off: Sequence[str], log: Path) -> None:
        """Import the images, by a containerd in the sandbox that ends with it."""
        self._folder.mkdir()
        config = self._folder.with_suffix(".toml")
        config.write_text(
            f'version = 3\nroot = "{self._folder}"\nstate = "/run/containerd"\n'
            f'disabled_plugins = {json.dumps([*off, *_OFF])}\n[grpc]\n  address = "/{SOCKET}"\n'
        )
        containerd = place.popen(["containerd", "-c", str(config), "-l", "warn"], log)
        try:
            give_up_s = time.monotonic() + START_S
            while not Path("/proc", str(place.pid), "root", SOCKET).is_socket():
                if not containerd.alive or time.monotonic() > give_up_s:
                    raise LabError(f"no containerd; the end of {log}:\n{containerd.tail()}")
                time.sleep(_LOOK_EVERY_S)
            for image in images:
                import_image(place, image)
        finally:
            containerd.terminate()
        (self._folder / _LIST).write_text(json.dumps([str(image) for image in images]))

    def missing(self, to: Path, images: Sequence[Path]) -> list[Path]:
        """Which of the images a node lacks; it gets a copy first, when there is nothing of its own."""
        if not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            self._copy(to)
        have = set(json.loads((to / _LIST).read_text()))
        return [image for image in images if str(image) not in have]

    @staticmethod
    def add(to: Path, image: Path) -> None:
        """Remember that a node has the image."""
        have = json.loads((to / _LIST).read_text())
        (to / _LIST).write_text(json.dumps([*have, str(image)]))

    def _copy(self, to: Path) -> None:
        fresh = to.with_name(f"{to.name}.new")
        done = subprocess.run(
            ["cp", "-al", str(self._folder), str(fresh)],
            capture_output=True,
            text=True,
            timeout=_COPY_S,
            check=False,
        )
        if done.returncode:
            raise LabError(f"images cannot be copied: {done.stderr.strip()}")
        for database in [*fresh.glob("*/*.db"), fresh / _LIST]:
            own = database.with_suffix(".own")
            own.write_bytes(database.read_bytes())
            own.replace(database)
        fresh.replace(to)


def import_image(place: Place, tar: Path) -> None:
    """Give the containerd that runs at the place an image."""
    give_up_s = time.monotonic() + START_S
    command = ["ctr", "-n", "k8s.io", "images", "import", str(tar)]
    while (done := place.run(command, timeout_s=_IMPORT_S, check=False)).returncode:
        # Its socket is there a moment before all its services are.
        early = any(word in done.stderr for word in ("Unimplemented", "Unavailable", "connection refused"))
        if not early or time.monotonic() > give_up_s:
            raise CommandError(command, done)
        time.sleep(_LOOK_EVERY_S)
