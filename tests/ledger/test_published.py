"""The published tables."""

import json
import re

import pytest

from labkit.errors import LabError
from labkit.files import notebooks, root
from labkit.ledger import published


def test_the_optimizer_took_36_percent_of_the_published_baseline():
    baseline = published.table("training-phases").set_index("variant").loc["baseline"]
    assert baseline["optimizer_s"] / baseline["total_s"] == pytest.approx(0.36, abs=0.005)


def test_compile_and_amp_together_were_a_third_faster():
    times = published.table("compile-amp").set_index("variant")["total_s"]
    assert times["vanilla"] / times["compile + AMP"] == pytest.approx(1.36, abs=0.005)


def test_a_compiled_network_has_the_accuracy_that_its_source_gives():
    frame = published.table("activations").set_index(["activation", "compiled", "batch"])[
        "accuracy"
    ]
    compiled = frame.xs((True, 64), level=("compiled", "batch"))
    assert compiled.dropna().to_dict() == {"GELU": 0.4616, "HardSwish": 0.4384, "ReLU": 0.4651}
    assert frame["FastSwish", False, 64] == 0.4414, "its source does not say that it was compiled"
    assert frame["GELU", False, 1] == 0.4653


@pytest.mark.parametrize("study", published._studies())
def test_every_table_says_its_source_and_hardware_and_has_typed_columns(study):
    frame = published.table(study)
    assert frame.attrs["source"]
    assert frame.attrs["hardware"]
    assert "object" not in {str(kind) for kind in frame.dtypes}


def test_a_source_is_a_paper_or_a_named_place_or_a_readme_without_date_and_author():
    for study in published._studies().values():
        if "README" in study["source"]:
            assert re.search(
                r'README of .*"[^"]+" \(undated\b.*author not named\)', study["source"]
            )
        else:
            assert re.search(r"arXiv:\d|ISSCC|data sheets", study["source"])


TITLES = {
    re.search('"(.+?)"', study["source"])[1]
    for study in published._studies().values()
    if "README" in study["source"]
}
QUOTING = ("04", "05", "08", "09", "18")


@pytest.mark.parametrize("number", QUOTING)
def test_a_lesson_that_quotes_a_readme_names_it_and_says_that_it_has_no_date_and_no_author(number):
    prose = prose_of(number)
    assert any(title in prose for title in TITLES)
    assert re.search(r"undated.*author (and GPU )?not named", prose)


def test_no_page_calls_a_readme_a_study():
    pages = [prose_of(path.stem[:2]) for path in notebooks()]
    pages += [
        path.read_text(encoding="utf-8")
        for path in [root() / "README.md", *root().glob("docs/**/*.md")]
    ]
    assert [page for page in pages if re.search(r"published study|study of 20\d\d", page)] == []


def test_the_numbers_that_lesson_05_quotes_are_those_of_the_tables():
    phases = published.table("training-phases").set_index("variant")
    loading = published.table("loading").set_index("variant")["data_s"]
    before, after = published.table("transfer")["accuracy"]
    prose = prose_of("05")
    first, script, both = phases.loc["baseline"], phases.loc["TorchScript"], phases.loc["all"]
    whole = first["total_s"]
    assert f"took {both['total_s']} s instead of {whole} s" in prose
    for phase in ("data_s", "optimizer_s"):
        part = first[phase]
        assert f"at most {whole} / ({whole} - {part}) = {whole / (whole - part):.2f}" in prose
    assert f"together they gained {whole / both['total_s']:.2f}" in prose
    fallen, risen = (
        first["forward_s"] - script["forward_s"],
        script["backward_s"] - first["backward_s"],
    )
    assert f"forward falls by {fallen} s while backward *rises* by {risen}" in prose
    assert (
        "loading fell from {:g} to {:g} s".format(*loading[["baseline", "pinned memory"]]) in prose
    )
    assert f"from {100 * before:.0f} % to about {100 * after:.0f} % right" in prose


def prose_of(number):
    [path] = [each for each in notebooks() if each.name.startswith(number)]
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def test_an_unknown_study_is_refused_with_the_known_ones():
    with pytest.raises(LabError, match="training-phases"):
        published.table("nothing")


def test_the_published_files_are_as_much_smaller_as_their_sizes_say():
    frame = published.table("deep-compression")
    assert len(frame) == 4
    for row in frame.itertuples():
        assert row.file_mb / row.compressed_mb == pytest.approx(row.times_smaller, abs=0.5)
        assert row.error_compressed <= row.error
