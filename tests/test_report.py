"""The report: one page that shows what was measured, and fetches nothing."""

import base64
import re
from dataclasses import replace

import nbformat
import pytest
from book_checks import FINDINGS
from rows_made_up import write_attempt, write_lesson, write_scores
from test_browser import CHROMIUM, QUIET, need_browser

from labkit import device, ledger, report
from labkit.files import artifacts, write_text
from labkit.ledger.rows import (
    EDITION,
    Answer,
    Claim,
    Decision,
    Deployment,
    Latency,
    Memory,
    Prediction,
    Ratio,
    Run,
    Training,
)
from labkit.lesson import pages


def page():
    return report.write_report().read_text(encoding="utf-8")


def text_of(html):
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL))


def test_an_empty_ledger_gives_a_page_that_says_what_to_do():
    assert "make run" in page()


def test_the_page_shows_status_claims_predictions_exercises_and_deployments():
    write_lesson()
    write_attempt()
    text = text_of(page())
    for part in (
        "✓ passed",
        "12.5 s",
        "3/3",
        "bf16 is faster",
        "2 x (from 1.8 to 2.2)",
        "no energy counter",
    ):
        assert part in text
    for part in (
        "How much?",
        "2.16",
        "image-bytes",
        "small",
        "large",
        "this CPU has no int8 instructions",
    ):
        assert part in text


def test_the_page_begins_with_the_answers_of_the_lessons_that_ran():
    write_lesson("r1", sentence="the old sentence")
    write_lesson("r2", started="2026-01-02T10:00:00+00:00")
    html = page()
    heads = [
        "Answers",
        "Claims that fail here",
        "What surprised",
        "Medals and scores",
        "Accuracy, latency and size",
        "Each lesson",
    ]
    assert re.findall("<h2.*?>(.*?)</h2>", html) == [*heads, "All measured rows"]
    front, each = map(text_of, html.split(">Each lesson</h2>"))
    parts = (
        "03_what_limits_speed",
        "Why does this call take so long, and could it be faster?",
        "So bf16 is faster",
        "1.41 x (from 1.31 to 1.52)",
    )
    places = [front.index(part) for part in parts]
    assert places == sorted(places)
    for part in (
        "Because half the bytes are read",
        "Holds for large layers",
        "Not for small batches",
    ):
        assert part in each
    assert "the old sentence" not in front + each


def test_the_head_names_the_commits_of_the_runs_and_not_that_of_the_writing():
    write_lesson("r1")
    write_attempt()
    ledger.add(replace(ledger.find(Run, run_key="r1")[0], commit="0123456789ab"))
    assert "runs of commit 0123456789ab · written" in text_of(page())


def test_before_the_lessons_stand_what_failed_and_what_did_not_run_and_no_claim_that_holds():
    write_lesson()
    rows = {"run_key": "r1", "verdict": "fails", "value": 0.9, "low": 0.8, "high": 1.0, "unit": "x"}
    ledger.add(
        *(
            Claim(**rows, claim_id=f"f{number}", sentence=f"sentence {number}")
            for number in range(8)
        )
    )
    write_attempt(
        notebook="01_deployment_fundamentals", status="failed", reason="cell 2 ran longer than 5 s"
    )
    front = page().partition(">Each lesson</h2>")[0]
    text = text_of(front)
    assert text.index("cell 2 ran longer than 5 s") < text.index(
        "sentence 0 0.9 x (from 0.8 to 1.0)"
    )
    assert "bf16 is faster 2 x" not in text
    assert "10 claims: ✓ holds 1 · ✗ fails 8 · ≈ inconclusive 1." in text
    assert "<summary>2 more</summary>" in front
    assert "sentence 7" not in front.partition("<summary>2 more</summary>")[0]


def test_what_surprised_are_the_guesses_of_a_reader_that_were_farthest_off():
    write_lesson()
    guesses = (("near", "2", "2.1", "right"), ("threefold", "6", "2", "off"), ("tenfold", "1", "10", "off"),
               ("option", "memory", "compute", "off"), ("another sign", "-1", "2", "off"))  # fmt: skip
    for name, answer, result, verdict in guesses:
        row = {
            "question": f"How much, {name}?",
            "answer": answer,
            "result": result,
            "verdict": verdict,
        }
        ledger.add(Prediction(run_key="r1", prediction_id=name, source="reader", **row))
    surprised = page().partition("<h2>What surprised</h2>")[2].partition("<h2>")[0]
    assert re.findall("How much, (.*?)\\?<", surprised) == [
        "another sign",
        "tenfold",
        "threefold",
        "option",
    ]
    assert "expected 1; the result was 10" in surprised


def test_a_picture_holds_one_run_with_one_batch_and_its_line_joins_nothing_else():
    key = "day/13_quantization/1"
    write_lesson(key, "13_quantization")
    about = {
        "dataset": "d",
        "engine": "eager",
        "device": "cpu",
        "threads": 2,
        "latency_p50_ms": 1.0,
    }
    for batch, model in ((64, "a"), (64, "b"), (1, "alone at this batch")):
        ledger.add(
            Deployment(
                run_key=key, **about, precision="int8", model=model, batch=batch, accuracy=0.9
            )
        )
    write_lesson("of-another-run", "20_ship_it")
    drawn = re.findall(r"<figcaption>(.*?)</figcaption>.*?<ol>(.*?)</ol>", page(), flags=re.DOTALL)
    assert [title for title, _ in drawn] == [
        "batch 1, threads: 2",
        "13 Quantization, batch 1, threads: 2",
    ]
    assert re.findall(">(.*?)</li>", drawn[1][1]) == [
        "small",
        "large",
        "alone at this batch",
    ]


GROUND = {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 18, 18)"}  # as Chromium has them
SMALLEST = """Math.min(...[...document.querySelectorAll('main *')]
    .filter((node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()))
    .map((node) => parseFloat(getComputedStyle(node).fontSize)))"""


@pytest.mark.browser
@pytest.mark.timeout(240)
def test_with_all_twenty_lessons_the_findings_fit_on_a_few_screens_and_on_a_phone():
    need_browser()
    from playwright.sync_api import sync_playwright

    for number in range(20):
        name = f"{number:02}_a_lesson"
        sentence = (
            "with 128 rows and more a step in bfloat16 takes two thirds of the time "
            "of one in float32"
        )
        write_lesson(f"day/{name}/1", name, sentence=sentence)
        write_attempt(f"day/{name}/1", name)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.goto(report.write_report().as_uri())
        assert tab.locator(".answers section").count() == 20
        fold = tab.locator("main > details").first.bounding_box()
        assert 1000 < fold["y"] <= 3000
        for theme in ("light", "dark"):
            tab.emulate_media(color_scheme=theme)
            wrong = [
                found for found in tab.evaluate(FINDINGS) if not found.startswith("no navigation")
            ]  # no book here
            assert wrong == [], theme
            assert (
                tab.evaluate("getComputedStyle(document.documentElement).backgroundColor")
                == GROUND[theme]
            )
        tab.set_viewport_size({"width": 400, "height": 800})
        tab.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 400
        assert tab.evaluate(SMALLEST) >= 8 * 96 / 72, "8 points"
        shrunk = "[...document.images].filter(image => image.width < image.naturalWidth).length"
        assert tab.evaluate(shrunk) == 0, "the 8.5 points of a picture become less"
        browser.close()


def test_medals_stand_on_the_front_with_what_earned_them():
    write_scores()
    text = text_of(page()).replace("&#39;", "'")
    assert (
        "Ada &amp; Bob: 5.1 times better (geometric mean of time and bytes) than the reference "
        "(95 %: 4.9 to 5.3)" in text
    )
    assert "82 % right · p95 0.3 of the reference's, without the floor of a call · 90 kB" in text


def test_both_boards_stand_on_the_front_each_under_its_own_head():
    write_scores()
    boards = text_of(page().partition("<h2>Medals and scores</h2>")[2].partition("<h2>")[0])
    fast, order = boards.split("The order of lesson 20, on ")
    assert "Trained to 80 % on fashion-mnist" in fast
    assert "gold Ada" not in boards
    assert "silver Ada &amp; Bob: 2.4 times as fast as the reference" in fast
    assert "1.5 s per training" in fast
    assert "bronze Ada &amp; Bob: 5.1 times" in order


def test_a_decision_stands_in_its_lesson_with_the_numbers_it_rests_on():
    write_lesson()
    ledger.add(
        Decision(
            run_key="r1",
            text="Ship the <b>small</b> one.",
            because="file, in kB: 90; right, in %: 82",
        )
    )
    each = page().partition(">Each lesson</h2>")[2]
    said = "Ship the &lt;b&gt;small&lt;/b&gt; one. It rests on file, in kB: 90; right, in %: 82."
    assert said in text_of(each)


def test_the_page_says_how_far_the_reader_is_where_somebody_worked_by_hand():
    assert "Your progress" not in text_of(page())
    write_lesson()
    assert re.search(
        r"Your progress 1 of \d+ lessons run to their end, 0 of \d+ exercises", text_of(page())
    )


def test_gaps_in_the_numbers_of_the_lessons_are_no_error():
    for number, name in (("19", "ship_it"), ("00", "start_here"), ("04", "where_time_goes")):
        write_lesson(number, f"{number}_{name}", sentence=f"said in {number}")
        write_attempt(number, f"{number}_{name}")
    answers = page().partition("<h2>Claims that fail here")[0]
    assert re.findall("So said in ([0-9]+)", answers) == ["00", "04", "19"]


def test_what_was_not_measured_is_a_dash_with_a_numbered_reason():
    write_lesson()
    html = page()
    row = next(line for line in html.split("<tr") if "<td>int8</td>" in line)
    assert row.count("–") == 3
    assert "(1)" in row
    assert "(1) this CPU has no int8 instructions" in html


def test_what_is_the_same_in_all_rows_is_said_once_and_empty_columns_are_left_out():
    write_lesson()
    text = text_of(page())
    assert (
        "All rows: dataset d · engine eager · precision fp32 · device cpu · threads 2 · batch 1"
        in text
    )
    assert (
        "cost per million" not in text.partition("this machine: 3 rows")[2].partition("recorded")[0]
    )


def test_a_failed_notebook_shows_its_reason():
    write_attempt(status="failed", reason="cell 2 ran longer than 5 s")
    assert "✗ failed" in text_of(page())
    assert "cell 2 ran longer than 5 s" in page()


def test_the_page_fetches_nothing():
    write_lesson()
    write_attempt()
    html = page()
    assert not re.search(r"<(script|link|iframe)\b", html)
    sources = re.findall(r'src="([^"]{0,40})', html)
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "@import" not in html


def test_only_the_newest_run_of_a_lesson_counts():
    write_lesson("r1", sentence="the old sentence")
    write_lesson("r2", sentence="the new sentence", started="2026-01-02T10:00:00+00:00")
    assert "the new sentence" in page()
    assert "the old sentence" not in page()


@pytest.mark.slow
def test_runs_with_several_seeds_say_in_how_many_each_claim_holds_and_on_how_many_machines():
    other = replace(
        device.describe(), machine_key="other", cpu="Ryzen 7950X", gpu=None, logical_cores=32
    )
    for seed in range(4):
        write_lesson(f"r{seed}", started=f"2026-01-0{seed + 1}T10:00:00+00:00", seed=seed)
        write_attempt(f"r{seed}", seed=seed, host="node-1")
    write_lesson("r4", started="2026-01-05T10:00:00+00:00", seed=4, machine=other)
    html = page()
    assert "holds in 5 of 5: seeds 0 to 4 on 2 machines" in html
    assert "holds in 0 of 5, open in 5: seeds 0 to 4 on 2 machines" in html
    assert html.count("<td>node-1</td>") == 4


def test_one_run_alone_says_nothing_of_seeds():
    write_lesson()
    write_attempt()
    assert "of 1:" not in page()
    assert "<th>machine</th>" not in page()


def test_rows_of_another_machine_of_a_cluster_stand_apart_and_name_it():
    other = replace(
        device.describe(), machine_key="other", cpu="Ryzen 7950X", gpu=None, logical_cores=32
    )
    write_lesson("r1")
    write_lesson("r2", started="2026-01-02T10:00:00+00:00", seed=1, machine=other)
    ledger.add(Latency(run_key="r2", name="only there", device="cpu", p50_ms=1.0))
    html = page()
    assert re.findall(r"<summary>(.*?): 3 rows</summary>", html)[:2] == [
        "this machine",
        "Ryzen 7950X, 32 cores",
    ]
    assert re.search(
        r"<summary>Ryzen 7950X, 32 cores: 1 row</summary>.*?only there", html, flags=re.DOTALL
    )


def test_the_same_machine_after_an_update_is_still_this_machine():
    write_lesson("r1", machine=replace(device.describe(), machine_key="before", torch="2.0"))
    assert "<summary>this machine: 3 rows</summary>" in page()


def test_text_of_a_notebook_cannot_inject_markup():
    write_lesson(sentence="<script>alert(1)</script>")
    assert "<script>" not in page()


@pytest.mark.slow
def test_executed_notebooks_are_linked_as_pages_that_open_in_a_browser():
    folder = artifacts() / "executed" / "quick"
    folder.mkdir(parents=True)
    for name in ("03_what_limits_speed", "01_deployment_fundamentals"):
        output = nbformat.v4.new_output("execute_result", {"text/plain": "2"})
        cells = [
            nbformat.v4.new_markdown_cell(f"# {name}"),
            nbformat.v4.new_code_cell("a < '&'", outputs=[output]),
        ]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / f"{name}.ipynb")
        write_attempt(notebook=name, run_key=name, output=f"executed/quick/{name}.ipynb")
    links = re.findall(r'href="([^"]+)"', page())
    first, second = (
        "executed/quick/01_deployment_fundamentals",
        "executed/quick/03_what_limits_speed",
    )
    assert links == [
        "#lessons",
        "#rows",
        f"{first}.html",
        f"{first}.ipynb",
        f"{second}.html",
        f"{second}.ipynb",
    ]
    for name in (first, second):
        shown = (artifacts() / f"{name}.html").read_text(encoding="utf-8")
        assert name.rpartition("/")[2] in shown
        assert "&lt;" in shown and "&amp;" in shown  # the code
        assert 'href="../../report.html"' in shown
        assert not re.search(r"<script|<link|src=\"http", shown)


def test_trainings_ratios_latencies_and_memory_are_shown_in_units_for_people():
    write_lesson()
    about = {"run_key": "r1", "device": "cpu", "threads": 2}
    ratio = {
        "median": 1.234,
        "low": 1.1,
        "high": 1.3,
        "floor": 0.01,
        "pairs": 99,
        "verdict": "faster",
    }
    ledger.add(
        Training(
            **about,
            study="phases",
            variant="all",
            model="m",
            dataset="d",
            total_s=12.5,
            accuracy=0.8304,
        ),
        Ratio(
            **about,
            name="step",
            baseline="fp32",
            arm="bf16",
            baseline_ms=2.0,
            arm_ms=1.0,
            tolerance=0.1,
            **ratio,
        ),
        Latency(
            **about,
            name="call",
            p50_ms=0.25,
            tail_reason="p95 needs 130 samples",
            noisy=True,
            noise="busy",
        ),
        Memory(**about, name="step", peak_bytes=28_100_000),
    )
    text = text_of(page())
    for part in (
        "phases",
        "12.5 s",
        "83.04 %",
        "bf16",
        "1.234",
        "250 µs",
        "28.1 MB",
        "busy",
        "p95 needs 130 samples",
    ):
        assert part in text


def test_answers_given_in_the_browser_survive_a_later_headless_run():
    write_lesson("by hand", sentence="clicked")
    ledger.add(
        Prediction(
            run_key="by hand", prediction_id="p", question="How much?", answer="77", source="reader"
        ),
        Answer(run_key="by hand", exercise_id="image-bytes", verdict="passed"),
    )
    write_lesson("headless", sentence="executed", started="2026-01-02T10:00:00+00:00")
    (run,) = ledger.find(Run, run_key="headless")
    ledger.add(replace(run, batch_key="b"))
    html = page()
    assert "77" in text_of(html)
    assert "Exercises, by hand: 1 of 1 passed" in html
    assert "Exercises, by the runner: 0 of 1 passed" in html
    assert "executed" in html
    assert "clicked" not in html


def test_recorded_rows_stand_beside_own_ones_and_name_their_hardware(monkeypatch, tmp_path):
    monkeypatch.setattr("labkit.device.commit", lambda: "abc")
    write_lesson()
    ledger.record(
        "RTX 4090, Ryzen 7950X", profile="quick", folder=tmp_path / "artifacts" / "recorded"
    )
    monkeypatch.setattr("labkit.ledger._recorded.root", lambda: tmp_path)
    html = page()
    places = re.findall(r"<summary>(.*?): 3 rows</summary>", html)
    assert places[0] == "this machine"
    assert re.fullmatch(
        rf"RTX 4090, Ryzen 7950X(, \w+)?, recorded \d{{4}}-\d\d-\d\d \(edition {EDITION}, quick\)",
        places[1],
    )
    assert html.count("<figcaption>") == 1, (
        "rows of other hardware are in no picture of this machine"
    )


def test_recorded_rows_that_measured_nothing_are_left_out_and_own_ones_say_why(
    monkeypatch, tmp_path
):
    monkeypatch.setattr("labkit.device.commit", lambda: "abc")
    write_lesson()
    ledger.add(
        Training(
            run_key="r1",
            study="s",
            variant="v",
            model="m",
            dataset="d",
            device="cpu",
            reason="no such engine",
        )
    )
    ledger.record(
        "RTX 4090, Ryzen 7950X", profile="quick", folder=tmp_path / "artifacts" / "recorded"
    )
    monkeypatch.setattr("labkit.ledger._recorded.root", lambda: tmp_path)
    assert page().count("no such engine") == 1


@pytest.mark.parametrize(
    ("source", "drawn"),
    [
        (r"so $\frac{a}{b}$ is", True),
        ("$$y = \\begin{cases} 1 & x \\ge 3 \\\\ 0 & x < 3 \\end{cases}$$", True),
        (r"$\left( x$", False),
        ("it costs 5 dollars", None),
    ],
)
def test_the_browser_draws_formulas_and_what_is_none_stays_code(tmp_path, source, drawn):
    path = tmp_path / "lesson.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(source)]), path)
    shown = pages.readable_pages([path])[path].read_text(encoding="utf-8")
    assert ("</math>" in shown) == (drawn is True)
    assert ("<code>" in shown) == (drawn is False)
    assert "$" not in shown.partition("<body>")[2]


def test_a_picture_on_a_readable_page_says_its_words_and_one_without_any_says_where_they_stand(
    tmp_path,
):
    path = tmp_path / "lesson.ipynb"
    drawn = {"image/png": base64.b64encode(b"png").decode()}
    said = {"image/png": {"alt": "seconds: 3, 4.5."}}
    outputs = [
        nbformat.v4.new_output("display_data", drawn, metadata=metadata) for metadata in (said, {})
    ]
    nbformat.write(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("draw()", outputs=outputs)]), path
    )
    shown = pages.readable_pages([path])[path].read_text(encoding="utf-8")
    assert re.findall('<img alt="(.*?)"', shown) == [
        "seconds: 3, 4.5.",
        "The text below says what to see here.",
    ]
    assert "No description has been provided" not in shown


def test_a_page_can_be_written_elsewhere(tmp_path):
    write_text(tmp_path / "other" / "x.json", "{}")
    assert report.write_report(tmp_path / "other" / "page.html").exists()
