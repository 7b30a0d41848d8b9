"""The part `netron` of deploy.py: graphs drawn in a browser without a request."""

import sys
import tempfile
import time
from pathlib import Path

import torch

from labkit import export, models
from labkit.files import root
from labkit.lesson.netron_view import page, read_graph

sys.path.insert(0, str(root() / "tests"))
from test_browser import CHROMIUM, QUIET


def netron(figures, quick):
    """ResNet-18 and the small ConvNeXt side by side."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [written(model, folder) for model in ("cnn-small" if quick else "resnet18", "convnext-mini")]
        drawn(figures, paths)


def written(name, folder):
    torch.manual_seed(0)
    return export.to_onnx(models.build(name)[0], models.example(name, 2), folder / f"{name}.onnx")


def drawn(figures, paths):
    """The page of a notebook, in headless Chromium: seconds until both graphs are drawn, and what was asked for."""
    graphs = [read_graph(path, largest_tensor=2**14) for path in paths]
    drawing = page(graphs, height=500)
    figures.add("netron_page", len(drawing) / 1e6, at_most=1, unit="MB")
    if CHROMIUM is None:
        return figures.add("netron_nodes_missing", None, at_most=0)
    from playwright.sync_api import sync_playwright

    asked, nodes = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        tab = browser.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        begun = time.monotonic()
        tab.set_content(drawing)
        for frame in tab.frames[1:]:
            frame.locator("body.default g.node").first.wait_for(timeout=120_000)
        figures.add("netron_two_graphs_drawn", time.monotonic() - begun, unit="s")
        nodes = [frame.locator("g.node").count() for frame in tab.frames[1:]]
        browser.close()
    missing = sum(max(0, one.operators.total() - count) for one, count in zip(graphs, nodes, strict=True))
    figures.add("netron_nodes_missing", missing, at_most=0)
    outbound = [url for url in asked if not url.startswith(("blob:", "data:", "about:"))]
    figures.add("netron_requests", len(outbound), at_most=0)
    return None
