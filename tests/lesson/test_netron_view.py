"""netron on one model: the whole graph and nothing else, offline, plain where nobody looks."""

import html
import re
import socket
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_browser import CHROMIUM, QUIET, need_browser

from labkit import cli
from labkit.errors import LabError, Unavailable
from labkit.lesson import cards, netron_view

WEIGHT = np.random.default_rng(0).standard_normal((16, 16, 5, 5)).astype(np.float32)  # 25,600 bytes


def write_model(path, layers=3, *, external=None):
    """A chain of convolutions and ReLUs; `external` names a file that the first weight claims to
    lie in.
    """
    nodes, weights, value = [], [], "input"
    for layer in range(layers):
        weight = numpy_helper.from_array(WEIGHT, f"w{layer}")
        if external and layer == 0:
            weight.ClearField("raw_data")
            weight.data_location = TensorProto.EXTERNAL
            weight.external_data.add(key="location", value=external)
        weights += [weight, numpy_helper.from_array(np.ones(16, np.float32), f"b{layer}")]
        nodes.append(
            helper.make_node("Conv", [value, f"w{layer}", f"b{layer}"], [f"c{layer}"], pads=[2] * 4)
        )
        value = f"r{layer}"
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [value]))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 16, 8, 8])
        for name in ("input", value)
    ]
    whole = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "chain.onnx")


def test_large_tensors_are_left_out_and_everything_else_stays(model):
    drawn = netron_view._read_graph(model, largest_tensor=1000)
    before, after = onnx.load(model), onnx.load_from_string(drawn.packed)
    assert len(drawn.packed) < 5000 < model.stat().st_size
    assert after.graph.node == before.graph.node
    for old, new in zip(before.graph.initializer, after.graph.initializer, strict=True):
        assert (new.name, new.dims, new.data_type) == (old.name, old.dims, old.data_type)
        assert new == old or not new.raw_data
    assert netron_view._read_graph(model, largest_tensor=10**6).packed == model.read_bytes()


def test_data_in_other_files_is_not_read(tmp_path):
    (tmp_path / "decoy.txt").write_text("private words " * 4096)
    page = netron_view.whole_page(write_model(tmp_path / "external.onnx", external="decoy.txt"))
    drawn = netron_view._read_graph(tmp_path / "external.onnx", largest_tensor=10**6)
    assert b"private" not in drawn.packed
    assert len(page) < 800_000


def test_the_page_names_only_what_netron_has():
    """What the page takes from netron by name; a new netron that renamed something fails here,
    not at the reader.
    """
    for name in netron_view._MODULES:
        assert (netron_view._netron_folder() / f"{name}.js").exists(), name
    host = (netron_view._netron_folder() / "browser.js").read_text(encoding="utf-8")
    for method in (
        "async view(view) {",
        "async start() {",
        "async require(id) {",
        "worker(id) {",
        "async asset(file) {",
    ):
        assert f"\n    {method}" in host
    for method in (
        "async _request(url,",
        "async _open(file, files) {",
        "event(name",
        "exception(error",
        "openURL(url",
    ):
        assert f"\n    {method}" in host
    assert "export const Host = browser.Host;" in host
    assert "export const View = view.View;" in (netron_view._netron_folder() / "view.js").read_text(
        encoding="utf-8"
    )


def test_the_modules_come_in_an_order_in_which_each_finds_what_it_imports():
    for place, name in enumerate(netron_view._MODULES):
        source = (netron_view._netron_folder() / f"{name}.js").read_text(encoding="utf-8")
        at_once = set(re.findall(r"^import .* from '\./([\w-]+)\.js';", source, flags=re.MULTILINE))
        assert at_once <= set(netron_view._MODULES[:place]), name


def test_what_stock_netron_asks_the_web_for_stands_in_methods_that_the_page_replaces():
    host = (netron_view._netron_folder() / "browser.js").read_text(encoding="utf-8")
    view = host[host.index("async view(view)") : host.index("async start()")]
    for words in (
        "await age();",
        "await consent();",
        "await telemetry();",
        "https://ipinfo.io/json",
    ):
        assert host.count(words) == view.count(words) == 1, words
    assert host.count("new window.XMLHttpRequest()") == 1


def test_names_cannot_write_into_the_page(tmp_path):
    name = '"><img src=x onerror=alert(1)>.onnx'
    page = netron_view.whole_page(write_model(tmp_path / name))
    assert "<img src=x" not in page
    assert "<img src=x" not in netron_view._document(
        netron_view._read_graph(tmp_path / name, largest_tensor=0)
    )


def test_the_page_allows_no_request_and_the_frame_no_access_to_the_notebook(model):
    graph = netron_view._read_graph(model, largest_tensor=0)
    policy = (
        netron_view._document(graph)
        .partition('Content-Security-Policy" content="')[2]
        .partition('"')[0]
    )
    assert policy.startswith("default-src 'none';")
    assert "http:" not in policy and "https:" not in policy
    page = netron_view.page([graph], height=400)
    assert policy in html.unescape(page)
    assert 'sandbox="allow-scripts allow-downloads"' in page
    assert "allow-same-origin" not in page


def test_two_models_cost_a_notebook_less_than_a_megabyte(model):
    both = [netron_view._read_graph(model, largest_tensor=netron_view.IN_A_NOTEBOOK)] * 2
    assert len(netron_view.page(both, height=400)) < 1_000_000


def test_a_missing_file_a_folder_and_a_claim_of_4_gb_are_refused(tmp_path):
    with (tmp_path / "huge.onnx").open("wb") as file:
        file.truncate(4 * 2**30)
    for path in (tmp_path / "gone.onnx", tmp_path, tmp_path / "huge.onnx"):
        with pytest.raises(LabError):
            netron_view.whole_page(path)


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x0a" * 500])
def test_what_is_no_model_is_refused(tmp_path, content):
    (tmp_path / "odd.onnx").write_bytes(content)
    with pytest.raises(LabError):
        netron_view.whole_page(tmp_path / "odd.onnx")


@pytest.fixture
def shown(monkeypatch):
    """What `show` displays, as if a reader sat in front of a notebook."""
    import IPython.display

    found = []
    monkeypatch.setattr(cards, "shell", lambda: object())
    monkeypatch.setattr(
        IPython.display,
        "display",
        lambda what, raw=False: found.append(what["text/html"] if raw else what.data),
    )
    return found


def test_in_a_notebook_the_models_are_drawn_side_by_side(model, tmp_path, shown):
    netron_view.show(model, write_model(tmp_path / "long.onnx", layers=9))
    (drawing,) = shown
    assert "chain.onnx" in drawing
    assert drawing.count("<iframe") == 2


def test_in_a_headless_run_the_drawing_lies_beside_the_executed_notebooks_and_is_linked(
    model, shown, monkeypatch, own_artifacts
):
    monkeypatch.setenv("LABKIT_HEADLESS", "1")
    netron_view.show(model)
    netron_view.show(model)
    link, again = shown
    assert "iframe" not in link
    assert again == link, "the same graph is the same page"
    (kept,) = (own_artifacts / "graphs").iterdir()
    assert (
        own_artifacts / "executed" / "quick" / re.search('href="(.*?)"', link)[1]
    ).resolve() == kept
    assert kept.read_text(encoding="utf-8").count("<iframe") == 1


def test_an_embedded_drawing_stays_in_the_executed_notebook(
    model, shown, monkeypatch, own_artifacts
):
    monkeypatch.setenv("LABKIT_HEADLESS", "1")
    netron_view.show(model, embedded=True)
    (drawing,) = shown
    assert drawing.count("<iframe") == 1
    assert "chain.onnx" in drawing
    assert not (own_artifacts / "graphs").exists()


def test_without_netron_a_note_gives_the_reason_and_serving_says_what_to_do(
    model, shown, monkeypatch
):
    monkeypatch.setitem(sys.modules, "netron", None)
    netron_view._netron.cache_clear()
    netron_view.show(model)
    (reason,) = shown
    assert "netron is not installed" in reason
    with pytest.raises(Unavailable, match="netron is not installed") as missing:
        netron_view.whole_page(model)
    assert "install" in missing.value.fix


@pytest.fixture(scope="module")
def browser():
    need_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield started
        started.close()


@pytest.fixture
def tab(browser):
    """A tab that records every request and lets none out but to a file; (page, addresses asked
    for).
    """
    page, asked = browser.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.route(re.compile(r"^(?!file://)"), lambda route: route.abort())
    yield page, asked
    page.close()


@pytest.mark.browser
@pytest.mark.timeout(180)
def test_the_drawing_of_a_notebook_needs_no_server_and_cannot_ask_or_reach_the_page_around_it(
    model, tab
):
    page, asked = tab
    drawn = netron_view.page([netron_view._read_graph(model, largest_tensor=0)], height=400)
    page.set_content(f"<title>notebook</title><div>{drawn}</div>")
    page.frames[1].locator("body.default g.node").first.wait_for(timeout=90_000)
    assert [url for url in asked if not url.startswith(("blob:", "data:"))] == []
    assert page.title() == "notebook"


@pytest.mark.browser
@pytest.mark.timeout(180)
def test_the_command_writes_one_page_that_a_browser_draws_from_the_file_alone(
    model, tmp_path, tab, own_artifacts, monkeypatch
):
    page, asked = tab
    target = own_artifacts / "views" / "chain-long.html"
    long = write_model(tmp_path / "long.onnx", layers=9)
    monkeypatch.setattr(sys, "argv", ["labkit", "view", str(model), str(long), "--no-browser"])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    page.goto(target.as_uri())
    first, second = page.frames[1:]
    for frame in (first, second):
        frame.locator("body.default g.node").first.wait_for(timeout=90_000)
    assert first.locator("g.node", has_text="Conv").count() == 3
    assert second.locator("g.node", has_text="Conv").count() == 9
    box = first.locator("g.node", has_text="Conv").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 8)
    first.locator("#sidebar-content input[value=pads]").wait_for(timeout=10_000)
    assert [url for url in asked if not url.startswith(("blob:", "data:"))] == [target.as_uri()]


@pytest.mark.browser
@pytest.mark.timeout(180)
def test_even_a_script_in_the_frame_could_neither_ask_nor_reach_the_page_around_it(model, tab):
    page, _ = tab
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(2)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        spy = "<script>try { parent.document.title = 'reached' } catch {} document.body.id = 'ran';"
        spy += f"fetch('{address}').catch(() => {{}}); new Image().src = '{address}'</script>"
        document = netron_view._document(netron_view._read_graph(model, largest_tensor=0))
        document = document.replace("</body>", f"{spy}</body>")
        page.set_content(
            '<title>notebook</title><iframe sandbox="allow-scripts" '
            f'srcdoc="{html.escape(document)}">'
        )
        page.frames[1].locator("body#ran g.node").first.wait_for(timeout=90_000)
        assert page.title() == "notebook"
        with pytest.raises(TimeoutError):
            listening.accept()
