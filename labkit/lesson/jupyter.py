"""JupyterLab as the course opens it: on the first lesson, quiet, and without asking the web for anything."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# No news, no update check: a laptop without network would only see them fail.
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/extensionmanager-extension:plugin": {"enabled": False},
    "@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True},  # else a reopened lesson says "model not found"
}


def serve(lessons: Path, arguments: Sequence[str]) -> int:
    """Run JupyterLab on the first lesson of a folder until it is stopped; returns its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "overrides.json").write_text(json.dumps(SETTINGS))
        paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        environment = os.environ | {"JUPYTER_PREFER_ENV_PATH": "1", "PATH": paths}  # its terminals find `labkit`
        command = [
            *(sys.executable, "-m", "jupyterlab"),
            f"--ServerApp.root_dir={lessons.parent}",
            f"--LabApp.default_url=/lab/tree/{lessons.name}/00_start_here.ipynb",
            f"--LabApp.app_settings_dir={folder}",
            *(["--allow-root"] if os.geteuid() == 0 else []),
            *arguments,  # the last ones win
        ]
        try:
            return subprocess.call(command, env=environment)
        except KeyboardInterrupt:  # the usual way to stop the server; the signal reached it too
            return 0
