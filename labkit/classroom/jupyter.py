"""Starts JupyterLab on the first lesson, without news, update checks or other network access."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from labkit.device import packages

# No news, no update check: a laptop without network would only see them fail.
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/extensionmanager-extension:plugin": {"enabled": False},
    # else a reopened lesson says "model not found"
    "@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True},
}


def serve(lessons: Path, arguments: Sequence[str]) -> int:
    """Run JupyterLab on the first lesson of a folder until it is stopped, and return its exit code.

    lessons    folder of the notebooks
    arguments  further options of JupyterLab
    Raises     Unavailable where JupyterLab is not installed; the lessons also open in any other
               program for notebooks
    """
    packages.imported(
        "jupyterlab", problem=f"JupyterLab is not here. Any program for notebooks opens {lessons}."
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "overrides.json").write_text(json.dumps(SETTINGS))
        programs = str(Path(sys.executable).parent)  # its terminals find `labkit`
        search_path = os.pathsep.join((programs, os.environ.get("PATH", "")))
        environment = os.environ | {"JUPYTER_PREFER_ENV_PATH": "1", "PATH": search_path}
        command = [
            sys.executable,
            "-m",
            "jupyterlab",
            f"--ServerApp.root_dir={lessons.parent}",
            f"--LabApp.default_url=/lab/tree/{lessons.name}/00_start_here.ipynb",
            f"--LabApp.app_settings_dir={folder}",
        ]
        if os.geteuid() == 0:
            command.append("--allow-root")
        command += arguments  # the last ones win
        try:
            return subprocess.call(command, env=environment)
        except KeyboardInterrupt:  # the usual way to stop the server; the signal reached it too
            return 0
