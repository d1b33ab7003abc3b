#!/usr/bin/env python3
# Starts the command line from this plugin's own folder. krew links to this file, and `python3` may be old, so
# this file works with Python 3.6 and searches for another interpreter if the plugin has no libraries for this
# one.
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARIES = HERE / "lib"


def folder(version):
    return LIBRARIES / ("cp" + version.replace(".", ""))


def main():
    name = Path(__file__).name
    own = "{}.{}".format(*sys.version_info)
    if not folder(own).is_dir():
        there = sorted("3." + x.name[3:] for x in LIBRARIES.glob("cp3*"))
        for version in there:
            for path in os.environ.get("PATH", os.defpath).split(os.pathsep):
                program = str(Path(path) / ("python" + version))
                if os.access(program, os.X_OK):
                    os.execv(program, [program, __file__, *sys.argv[1:]])  # noqa: S606 (no shell is wanted)
        sys.exit("error: kubectl hyperscout needs Python {}, and this is {}".format(" or ".join(there), own))
    sys.path.insert(0, str(folder(own)))
    sys.argv[0] = name
    if name.startswith("kubectl_complete"):
        from hyperscout_cli.manage.kubectl_completion import main as run
    else:
        from hyperscout_cli.main import main as run
    sys.exit(run())


main()
