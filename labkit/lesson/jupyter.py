"""JupyterLab as the course opens it: on the first lesson, quiet, and without asking the web for anything."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from labkit.files import root

# No news, no update check: a laptop without network would only see them fail.
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/extensionmanager-extension:plugin": {"enabled": False},
    "@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True},  # else a reopened lesson says "model not found"
}


def command(settings_folder, arguments=()):
    """The JupyterLab command line; `arguments` come last and so win."""
    return [
        *(sys.executable, "-m", "jupyterlab"),
        f"--ServerApp.root_dir={root()}",
        "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb",
        f"--LabApp.app_settings_dir={settings_folder}",
        *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
        *arguments,
    ]


def serve(arguments=()):
    """Run JupyterLab until it is stopped; returns its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "overrides.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
        environment = {**os.environ, "JUPYTER_PREFER_ENV_PATH": "1"}
        try:
            return subprocess.call(command(folder, arguments), env=environment)
        except KeyboardInterrupt:  # the usual way to stop the server; the signal reached it too
            return 0
