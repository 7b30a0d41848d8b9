"""The course as a book: built offline from what was run, whole, and readable for everybody."""

import base64
import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from html import unescape

import nbformat
import pytest
import yaml
from book_checks import FINDINGS, book_pages, broken_links, is_outbound, keyboard, survey
from disk_faults import FAULTS
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from rows_made_up import write_attempt, write_lesson, write_scores
from test_browser import CHROMIUM, QUIET, need_browser
from test_cli import COMMANDS

from labkit import ledger
from labkit.errors import LabError, Unavailable
from labkit.files import root
from labkit.ledger.rows import Attempt, Prediction
from labkit.lesson import cards, pages, syllabus, verdicts
from labkit.text.course_pages import glossary

pytestmark = pytest.mark.slow  # the first test that comes builds the whole book

BUILDER = root() / "docs" / "book" / "build.py"
LESSON, EXECUTED = "03_what_limits_speed", "executed/quick/03_what_limits_speed.ipynb"
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
NO_NETWORK = """
import socket


def refuse(*_):
    raise OSError("a build asks no other host for anything")


socket.socket.connect = socket.getaddrinfo = refuse
"""


def html(text):
    return new_output("display_data", {"text/html": text, "text/plain": "its text"})


def executed_lesson():
    """A small notebook with one output of each kind that lessons have."""
    wide = (
        "<table><tr>"
        + "".join(f"<td>column-{number}</td>" for number in range(40))
        + "</tr></table>"
    )
    picture = new_output(
        "display_data", {"image/png": base64.b64encode(DOT).decode(), "text/plain": "<Figure>"}
    )
    said = {"image/png": {"alt": "time against batch. fused: 2 at 16, 5 at 256."}}
    spoken = new_output(
        "display_data", {"image/png": base64.b64encode(DOT + b" ").decode()}, metadata=said
    )
    drawing = html('<a href="../../graphs/abc123.html">small.onnx, drawn by netron</a>')
    cells = [
        new_markdown_cell(
            "# What limits speed\n\n**A question?**\n\nSo $\\frac{a}{b}$ is\n\n$$y "
            "= \\sqrt{x} \\ge 3$$"
        ),
        new_code_cell(
            "print(6 * 7)", outputs=[new_output("stream", name="stdout", text="forty-two\n")]
        ),
        new_markdown_cell("## The widest of tables"),
        new_code_cell(
            "table", outputs=[html(wide), html(cards.card("note", "Read this", "A card."))]
        ),
        new_code_cell("plt.plot([1, 2])", outputs=[picture]),
        new_code_cell("draw(0.5)", outputs=[spoken]),
        *question("speed", "7.5", "How many times as fast?", None, (7.0, 8.0)),
        *question("winner", "bf16", "Which is faster?", ["fp32", "bf16"], (None, None)),
        new_code_cell("show(path)", outputs=[drawing]),
    ]
    return new_notebook(
        cells=cells, metadata=nbformat.read(syllabus.lessons()[0].path, as_version=4).metadata
    )


def question(name, result, text, options, interval):
    """Three cells: a prediction, what stands between, and the result; a heading follows."""
    row = Prediction(
        run_key="made-up",
        prediction_id=name,
        question=text,
        answer="1",
        source="default",
        unit=None,
    )
    low, high = interval
    found = replace(row, result=result, low=low, high=high, verdict="no answer")
    return [
        new_markdown_cell(f"## Asked about {name}"),
        new_code_cell("predict(...)", outputs=[html(cards.card("asked", row, options))]),
        new_code_cell(
            "measure()",
            outputs=[new_output("stream", name="stdout", text=f"the {name} it came to\n")],
        ),
        new_code_cell("reveal(...)", outputs=[html(cards.card("revealed", found, "measured"))]),
        new_markdown_cell(f"What the {name} means."),
    ]


def build(artifacts):
    """Build the book in a Python that cannot reach any other host; returns what it said."""
    (artifacts / "hook").mkdir(exist_ok=True)
    (artifacts / "hook" / "sitecustomize.py").write_text(NO_NETWORK)
    own = {
        "LABKIT_ARTIFACTS": str(artifacts),
        "PYTHONPATH": f"{artifacts / 'hook'}{os.pathsep}{root()}",
    }
    command = [sys.executable, str(BUILDER)]
    return subprocess.run(
        command, cwd=artifacts, env=os.environ | own, capture_output=True, text=True, check=True
    )


@pytest.fixture(scope="module")
def artifacts(once):
    """An artifacts folder with the book of the whole course, of which one lesson was run, for
    all test processes.
    """
    return once("book", write_book)


def write_book(folder):
    (folder / "graphs").mkdir()
    (folder / "graphs" / "abc123.html").write_text(
        '<!doctype html><html lang="en"><title>drawn</title><p>a graph'
    )
    (folder / EXECUTED).parent.mkdir(parents=True)
    nbformat.write(executed_lesson(), folder / EXECUTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_ARTIFACTS", str(folder))
        write_lesson(sentence="a <script>alert(1)</script> *sentence*")
        write_attempt(output=EXECUTED)
        write_scores("*Ada* <script>")
        write_lesson("r2", "01_deployment_fundamentals")
        write_attempt("r2", "01_deployment_fundamentals", status="failed", reason="cell 2")
    done = build(folder)
    assert done.stderr == "", "Sphinx has nothing to warn of"


@pytest.fixture
def book(artifacts, monkeypatch):
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(artifacts))
    return artifacts / "book"


def page(book, name):
    return (book / f"{name}.html").read_text(encoding="utf-8")


def text_of(page):
    return re.sub(
        r"\s+", " ", re.sub(r"<(script|style)\b.*?</\1>|<[^>]+>", "", page, flags=re.DOTALL)
    )


def test_every_lesson_has_its_page_and_the_first_page_leads_to_it(book):
    first = page(book, "index")
    for lesson in syllabus.lessons():
        assert f'href="lessons/{lesson.name}.html"' in first
        assert f"<h1>{lesson.title}</h1>" in page(book, f"lessons/{lesson.name}")


def test_a_lesson_that_was_run_is_shown_with_its_outputs_and_says_which_run_that_is(book):
    text = text_of(page(book, f"lessons/{LESSON}"))
    assert "All outputs are of one run: profile quick, finished 2026-01-01 10:00 UTC" in text
    assert "forty-two" in text
    assert "A card." in text


def test_a_lesson_that_was_not_run_or_did_not_pass_is_shown_without_outputs_and_says_so(book):
    for name in ("01_deployment_fundamentals", "12_onnx_graphs"):
        shown = page(book, f"lessons/{name}")
        assert (
            f"not run here, so it is shown without outputs. To see yours: labkit run {name[:2]}"
            in text_of(shown)
        )
        assert "cell_output" not in shown


def test_the_first_page_has_the_answer_of_each_lesson_that_it_shows_under_its_question(book):
    first = page(book, "index")
    text = text_of(first)
    before = text[text.index("What this machine answered") : text.rindex("How a lesson works")]
    assert "So a <script>alert(1)</script> *sentence*" in unescape(before)
    assert "1.41 x (from 1.31 to 1.52)" in before
    for part in (
        "Because half the bytes are read",
        "Holds for large layers",
        "Not for small batches",
    ):
        assert part in before
    assert before.count("Because") == 1, "the run that failed answers nothing"
    assert "<script>alert" not in first


def test_formulas_are_drawn_by_the_browser_itself(book):
    shown = page(book, f"lessons/{LESSON}")
    assert shown.count("<math") == 2
    assert "<mfrac>" in shown
    for lesson in syllabus.lessons():
        left = re.sub(r"<pre>.*?</pre>", "", page(book, f"lessons/{lesson.name}"), flags=re.DOTALL)
        assert not re.search(r"\$\$|\\frac|MathJax", left), lesson.name


def test_a_picture_says_its_own_words_or_is_named_after_its_section(book):
    shown = page(book, f"lessons/{LESSON}")
    assert 'alt="time against batch. fused: 2 at 16, 5 at 256."' in shown
    assert (
        'alt="Picture in the section “The widest of tables”; the text below it says what to see"'
        in shown
    )
    assert "No description has been provided" not in shown


def test_the_drawing_of_netron_is_a_frame_that_can_reach_nothing(book):
    (frame,) = re.findall(r"<iframe[^>]*>", page(book, f"lessons/{LESSON}"))
    assert 'src="../graphs/abc123.html"' in frame
    assert 'title="small.onnx, drawn by netron"' in frame
    assert 'sandbox="allow-scripts allow-downloads"' in frame
    assert (book / "graphs" / "abc123.html").exists()


def test_no_link_leads_nowhere(book):
    assert len(book_pages(book)) > len(syllabus.lessons())
    assert broken_links(book) == []


def test_a_missing_file_a_missing_anchor_and_a_link_out_of_the_folder_are_noticed(tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="b.html#there"></a><a href="#here"></a><a href="../x"></a>'
    )
    (tmp_path / "b.html").write_text(
        '<img src="c.png"><a href="https://example.org"></a><a href="file:///etc/hosts"></a>'
    )
    assert sorted(broken_links(tmp_path)) == [
        ("a.html", "../x"),
        ("a.html", "b.html#there"),
        ("b.html", "c.png"),
        ("b.html", "file:///etc/hosts"),
    ]


def test_no_page_loads_anything_from_another_host(book):
    loaded = [
        (name, address)
        for name in book_pages(book)
        for tag in re.findall(
            r"<(?:script|link|img|iframe|source|object)\b[^>]*>", (book / name).read_text("utf-8")
        )
        for address in re.findall(r'(?:src|href|data)="([^"]+)"', tag)
        if address.startswith(("http:", "https:", "//"))
    ]
    assert loaded == []


def test_the_glossary_has_every_term_and_leads_to_the_section_that_explains_it(book):
    shown = page(book, "glossary")
    terms = re.findall(r'<dt id="term-[^"]*">(.*?)</dt>', shown)
    assert [unescape(term).replace("’", "'") for term in terms] == [
        term.name for term in glossary()
    ]
    explained = sum(term.address.startswith("../notebooks/") for term in glossary())
    assert (
        len(
            re.findall(
                r'href="lessons/\d\d_', shown.partition("<article")[2].partition("</article>")[0]
            )
        )
        == explained
    )


def test_every_command_and_every_method_is_in_the_book(book):
    text = text_of(page(book, "commands"))
    assert [command for command in COMMANDS if f"labkit {command}" not in text] == []
    assert "Execute notebooks headlessly and write artifacts/report.html." in text, (
        "typer cuts its list of commands"
    )
    for folder, name in (
        ("methods", "methods"),
        ("compress", "compression"),
        ("quantize", "quantization"),
    ):
        files = [
            path
            for path in (root() / "labkit" / folder).rglob("*.py")
            if "\nNot when " in path.read_text("utf-8")
        ]
        found = text_of(page(book, name))
        assert [
            path.name for path in files if path.relative_to(root()).as_posix() not in found
        ] == []
        cards = sum(path.read_text("utf-8").count("Not when ") for path in files)
        assert len(re.findall("Not when", found)) == cards >= len(files) > 3


def test_further_reading_has_the_links_of_every_lesson(book):
    shown = page(book, "reading")
    for lesson in syllabus.lessons():
        cells = json.loads(lesson.path.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(cell["source"]) for cell in cells]
        # some lessons have none
        last = next((text for text in reversed(texts) if "Further reading" in text), "")
        links = re.findall(r"\]\((https?://[^)\s]+)\)", last.partition("Further reading")[2])
        assert [link for link in links if link.replace("&", "&amp;") not in shown] == []
        assert f"{lesson.name[:2]} {lesson.title}" in text_of(shown)


def test_the_results_show_both_boards_and_a_name_is_text_there(book):
    text = text_of(page(book, "results"))
    for part in (
        "Trained to 80 % on fashion-mnist",
        "The order of lesson 20, on",
        "2.40 [2.20, 2.60]",
        "5.10 [4.90, 5.30]",
    ):
        assert part in text
    assert text.count("*Ada* &lt;script&gt;") == 2


def test_the_copy_of_the_report_stays_in_the_book_and_the_results_count_its_claims(book):
    links = re.findall(r'href="([^"]+)"', page(book, "report"))
    lessons = ["lessons/01_deployment_fundamentals.html", f"lessons/{LESSON}.html"]
    assert links == ["index.html", "#lessons", "#rows", *lessons, *lessons], (
        "of the answers in front, and of the runs below"
    )
    assert "exercises solved by you" in text_of(page(book, "results"))
    row = next(
        line
        for line in page(book, "results").split("<tr")
        if f"lessons/{LESSON}.html" in line and "<td" in line
    )
    [exercises] = [lesson.exercises for lesson in syllabus.lessons() if lesson.name == LESSON]
    assert re.findall(r"<p>([^<]*)</p>", row) == ["quick", "1", "0", "1", f"0 of {len(exercises)}"]


def test_the_report_beside_the_book_links_its_first_page_and_has_readable_pages_of_its_own(
    book, artifacts
):
    links = re.findall(r'href="([^"]+)"', (artifacts / "report.html").read_text(encoding="utf-8"))
    own = f"{EXECUTED.removesuffix('ipynb')}html"
    assert links[:6] == ["book/index.html", "#lessons", "#rows", own, own, EXECUTED]
    assert (artifacts / own).is_file()


@pytest.fixture
def part(monkeypatch):
    """Loads a file of docs/book as a module."""
    monkeypatch.syspath_prepend(str(BUILDER.parent))

    def load(name):
        spec = importlib.util.spec_from_file_location(
            f"book_{name}", BUILDER.with_name(f"{name}.py")
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_a_build_that_fails_leaves_the_old_book(part, own_artifacts, monkeypatch):
    builder = part("build")
    (own_artifacts / "book").mkdir(parents=True)
    (own_artifacts / "book" / "index.html").write_text("the old book")

    def give_up(*_, **settings):
        raise LabError("Sphinx could not build the book.")

    monkeypatch.setattr(builder, "gather", lambda *_: {})
    monkeypatch.setattr(builder, "sphinx", give_up)
    with pytest.raises(LabError):
        builder.build()
    assert (own_artifacts / "book" / "index.html").read_text() == "the old book"


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_disk_that_refuses_the_new_book_leaves_the_old_one(
    fault, part, own_artifacts, monkeypatch
):
    builder = part("build")
    (own_artifacts / "book").mkdir(parents=True)
    (own_artifacts / "book" / "index.html").write_text("the old book")

    def built(sources, folder, **settings):
        folder.mkdir()
        (folder / "index.html").write_text("new" * 50)
        (folder / "large.html").write_text("new" * 1000)

    monkeypatch.setattr(builder, "gather", lambda *_: {})
    monkeypatch.setattr(builder, "newest_runs", dict)
    monkeypatch.setattr(builder, "write_report", lambda *_: None)
    monkeypatch.setattr(builder, "sphinx", built)
    with pytest.raises(OSError), fault(own_artifacts):
        builder.build()
    assert [path.name for path in own_artifacts.rglob("*.html")] == ["index.html"]
    assert (own_artifacts / "book" / "index.html").read_text() == "the old book"
    builder.build()
    assert len(list((own_artifacts / "book").iterdir())) == 2


def test_without_sphinx_it_says_what_to_install(part, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sphinx.application", None)
    with pytest.raises(Unavailable, match="Sphinx is not installed") as missing:
        part("build").sphinx(tmp_path / "sources", tmp_path / "built")
    assert "[book]" in missing.value.fix


def test_solved_runs_and_runs_whose_notebook_is_gone_are_not_shown(part, own_artifacts):
    for key, folder in (
        ("old", "quick"),
        ("new", "lab"),
        ("solved", "quick-solved"),
        ("gone", "paper"),
    ):
        path = own_artifacts / "executed" / folder / f"{LESSON}.ipynb"
        write_attempt(key, output=f"executed/{folder}/{LESSON}.ipynb")
        if key != "gone":
            path.parent.mkdir(parents=True)
            path.write_text("{}")
    (row,) = ledger.find(Attempt, run_key="new")
    ledger.add(replace(row, finished_utc="2026-02-01T10:00:00+00:00"))
    (shown,) = part("build").newest_runs().values()
    assert shown.run_key == "new"


def test_a_card_keeps_signs_that_markdown_would_take_and_links_its_source(
    part, tmp_path, monkeypatch
):
    pages = part("pages")
    monkeypatch.setattr(pages, "PACKAGE", tmp_path / "labkit")
    path = tmp_path / "labkit" / "methods" / "tiny.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        '"""Tiny: a *small* one.\n\nWhat     a * b * c,\n         over two lines, in `code*`\n'
        'Source   Somebody, arXiv:2101.01321\n"""\n\n\ndef shown(x):\n    """Doubles."""\n    '
        "return 2 * x\n\n\n"
        'def _hidden(x):\n    """Not offered."""\n'
    )
    card = pages._card(path)
    assert card.startswith("## Tiny\n\nA \\*small\\* one. In `labkit/methods/tiny.py`.")
    assert "What\n: a \\* b \\* c, over two lines, in `code*`\n" in card
    assert "[arXiv:2101.01321](https://arxiv.org/abs/2101.01321)" in card
    assert '"""Doubles."""' in card
    assert "return" not in card
    assert "_hidden" not in card


FAULTS = {
    "picture without a text": '<img src="data:,">',
    "frame without a title": "<iframe></iframe>",
    "control without a name": "<button></button>",
    "name used twice": '<p id="a">a</p><p id="a">b</p>',
    "a level of headings is skipped": "<h3>three</h3>",
    "not one main heading": "<h1>another</h1>",
    "not one main part": "<main>another</main>",
    "changes the order of tabs": '<a href="#" tabindex="3">first</a>',
    "can be scrolled by mouse only": '<div style="width:50px;overflow:auto"><p '
    'style="width:900px">wide</p></div>',
    "contrast 2.85": '<p style="color:#999">pale</p>',
    "contrast 1.00": '<div style="background:#111;color:#111">dark</div>',
}
SOUND = (
    '<!doctype html><html lang="en"><title>t</title><body><nav><a '
    'href="#x">x</a></nav><main><h1>One</h1>{}</main>'
)


@pytest.fixture
def chromium():
    need_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.mark.browser
def test_the_checks_of_a_page_notice_each_fault(chromium):
    tab = chromium.new_page()
    tab.set_content(SOUND.format("<p>Black on white.</p>"))
    assert tab.evaluate(FINDINGS) == []
    for rule, fault in FAULTS.items():
        tab.set_content(SOUND.format(fault))
        found = tab.evaluate(FINDINGS)
        assert {finding.partition(":")[0] for finding in found} == {rule}


@pytest.mark.browser
@pytest.mark.timeout(240)
def test_pages_ask_no_host_and_can_be_read_and_used_by_everybody(book):
    need_browser()
    names = [
        "index.html",
        f"lessons/{LESSON}.html",
        "lessons/17_tensorrt_deployment.html",
        "methods.html",
        "report.html",
    ]
    found = survey(book, names, chromium=CHROMIUM, options=QUIET)
    assert {what: wrong for what, wrong in found.items() if wrong} == {}


@pytest.mark.browser
def test_the_book_asks_before_it_shows_a_result_and_keeps_the_guess(book, chromium):
    tab = chromium.new_context().new_page()
    lesson = (book / "lessons" / f"{LESSON}.html").as_uri()
    tab.goto(lesson)
    hidden = [tab.get_by_text(f"the {name} it came to") for name in ("speed", "winner")]
    meant = tab.get_by_text("What the speed means.")
    assert not any(each.is_visible() for each in (*hidden, meant))
    assert tab.get_by_role("heading", name="Asked about winner").is_visible(), (
        "a heading is never folded"
    )
    field = tab.get_by_label("My guess:")
    field.press("Enter")
    assert not hidden[0].is_visible(), "an empty guess is none"
    field.fill("6.9")
    field.press("Enter")
    assert hidden[0].is_visible() and meant.is_visible() and not hidden[1].is_visible()
    tab.get_by_label("fp32").check()
    tab.get_by_role("button", name="That is my guess").nth(1).click()
    assert hidden[1].is_visible()
    tab.reload()
    assert all(each.is_visible() for each in hidden), "what was answered stays open"
    tab.goto((book / "guesses.html").as_uri())
    assert "1 of 2 guesses were right or close." in tab.content()
    assert tab.evaluate(FINDINGS) == []
    assert tab.locator("#guess-list tbody tr").all_inner_texts() == [
        f"{LESSON}\tHow many times as fast?\t6.9\t7.5\tright",
        f"{LESSON}\tWhich is faster?\tfp32\tbf16\toff",
    ]
    tab.get_by_role("button", name="Forget my guesses").click()
    assert "holds no guess" in tab.content()


@pytest.mark.browser
def test_show_me_unfolds_a_result_without_a_guess(book, chromium):
    tab = chromium.new_page()
    tab.goto((book / "lessons" / f"{LESSON}.html").as_uri())
    tab.get_by_role("button", name="Show me").first.click()
    assert tab.get_by_text("the speed it came to").is_visible()
    assert "No guess made." in tab.content()


TWO_QUESTIONS = """<!doctype html><script src="{script}"></script><article class="bd-article"><section>
<div class="cell"><div data-asked="a"><div>Predict: A?</div></div></div>
<div class="cell"><div data-asked="b"><div>Predict: B?</div></div></div>
<div class="cell"><p data-revealed="a" data-result="2">two</p><p data-revealed="b" data-result="3">three</p></div>
</section></article>"""


@pytest.mark.browser
def test_a_guess_opens_nothing_that_another_open_question_still_hides(book, chromium, tmp_path):
    (tmp_path / "two.html").write_text(
        TWO_QUESTIONS.format(script=(book / "_static" / "book.js").as_uri())
    )
    tab = chromium.new_page()
    tab.goto((tmp_path / "two.html").as_uri())
    for number, left in enumerate((False, True)):
        tab.get_by_label("My guess:").nth(number).fill("2")
        tab.get_by_label("My guess:").nth(number).press("Enter")
        assert tab.get_by_text("three").is_visible() == left
        assert (
            "opens with the next question" in tab.locator(".guess-said").nth(number).inner_text()
        ) != left


@pytest.mark.browser
def test_without_scripts_nothing_is_folded_and_a_browser_that_keeps_nothing_says_so(book, chromium):
    plain = chromium.new_context(java_script_enabled=False).new_page()
    plain.goto((book / "lessons" / f"{LESSON}.html").as_uri())
    assert plain.get_by_text("the speed it came to").is_visible()
    assert plain.locator("form.guess").count() == 0
    tab = chromium.new_page()
    tab.add_init_script(
        "Storage.prototype.setItem = () => { throw new DOMException('full', "
        "'QuotaExceededError'); }"
    )
    tab.goto((book / "lessons" / f"{LESSON}.html").as_uri())
    tab.get_by_label("My guess:").fill("3")
    tab.get_by_label("My guess:").press("Enter")
    assert tab.get_by_text("the speed it came to").is_visible()
    assert "Your browser keeps nothing" in tab.content()


@pytest.mark.browser
def test_the_book_judges_a_guess_as_the_lesson_does(book, chromium):
    tab = chromium.new_page()
    tab.goto((book / "guesses.html").as_uri())
    results = [
        ("2", 2, 2),
        ("2", 1.5, 2.5),
        ("-2", None, None),
        ("0", 0, 0),
        ("bf16", None, None),
        (None, None, None),
    ]
    for result, low, high in results:
        for guess in ("2", "2.19", "2.21", "2.49", "2.51", "1.6", "0", "-2", "bf16", "fp32"):
            found = {"result": result, "low": low and str(low), "high": high and str(high)}
            told = tab.evaluate(
                "([guess, found]) => verdict(guess, found)", [guess, drop_none(found)]
            )
            row = Prediction(
                run_key="r",
                prediction_id="p",
                question="?",
                answer=guess,
                source="reader",
                unit=None,
            )
            assert told == verdicts.of_prediction(
                replace(row, result=result, low=low, high=high)
            ), (guess, result)


def drop_none(found):
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.browser
def test_a_lesson_beside_the_report_fits_a_phone(tmp_path, chromium):
    lesson = executed_lesson()
    heads = [f"column{number}" for number in range(30)]
    wide = "\n".join(f"|{'|'.join(row)}|" for row in (heads, ["---"] * 30, heads))
    lesson.cells.insert(1, new_markdown_cell(wide))
    nbformat.write(lesson, tmp_path / "lesson.ipynb")
    page = pages.readable_pages([tmp_path / "lesson.ipynb"])[tmp_path / "lesson.ipynb"]
    tab = chromium.new_page(viewport={"width": 400, "height": 800})
    tab.goto(page.as_uri())
    assert tab.locator("table").count() > 1
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.browser
def test_a_page_that_breaks_the_keyboard_is_noticed(tmp_path, chromium):
    path = tmp_path / "page.html"
    path.write_text(
        '<!doctype html><main><a href="#a" style="outline:none">unmarked</a><a href="#b" '
        'tabindex="-1">never</a>'
        '<button class="theme-switch-button">no theme</button><button class="primary-toggle">no '
        "menu</button></main>"
    )
    tab = chromium.new_page()
    tab.set_default_timeout(1000)
    wrong = "\n".join(keyboard(tab, path.as_uri()))
    for part in (
        "invisible when reached: <a",
        "does not lead to the text",
        "theme does not change",
        "finds nothing",
    ):
        assert part in wrong
    assert "does not open and close on a phone" in wrong


def test_only_addresses_of_other_hosts_are_outbound():
    assert is_outbound("https://example.org/x.js")
    assert is_outbound("http://127.0.0.1/")
    assert not any(map(is_outbound, ("file:///x.html", "data:,", "blob:x", "about:blank")))


def test_the_workflow_that_publishes_the_book_uses_targets_that_exist():
    text = (root() / "docs" / "publishing.md").read_text(encoding="utf-8")
    workflow = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, flags=re.DOTALL)[1])
    steps = workflow["jobs"]["book"]["steps"]
    made = [word for step in steps for word in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))]
    targets = re.findall(
        r"^([a-z-]+):", (root() / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert made == ["run", "book"]
    assert set(made) <= set(targets)
    assert (
        next(
            step["with"]["path"]
            for step in steps
            if "upload-pages-artifact" in step.get("uses", "")
        )
        == "artifacts/book"
    )


def test_the_container_installs_as_the_page_says_and_its_files_exist():
    folder = root() / ".devcontainer"
    settings = json.loads((folder / "devcontainer.json").read_text(encoding="utf-8"))
    recipe = (folder / settings["build"]["dockerfile"]).read_text(encoding="utf-8")
    assert (folder / settings["build"]["context"]).resolve() == root().resolve()
    copied = [
        name
        for line in re.findall(r"^COPY (.+) \S+$", recipe, flags=re.MULTILINE)
        for name in line.split()
    ]
    assert "requirements.lock" in copied
    assert [name for name in copied if not (root() / name).exists()] == []
    page = (root() / "docs" / "installing.md").read_text(encoding="utf-8")
    for part in (
        "--require-hashes --no-deps -r requirements.lock",
        "--no-deps --no-build-isolation -e .",
    ):
        assert part in recipe
        assert part in page
