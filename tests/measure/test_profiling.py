"""Profiles of small programs whose operators and functions are known."""

import json
import pstats

import pytest
import torch

from labkit.measure.profiling import _call_tree, profile, profile_python


@pytest.fixture(scope="module")
def seen():
    weight = torch.ones(64, 64)
    return profile(lambda x: (x @ weight).relu() + 1, device="cpu", inputs=torch.ones(64, 64), calls=4)


def test_the_table_counts_operators_per_call(seen):
    table = seen.operators().set_index("operator")
    assert table.loc[["aten::mm", "aten::relu", "aten::add"], "calls"].tolist() == [1, 1, 1]
    assert table["share"].sum() == pytest.approx(1)
    assert (table["total_ms"] >= table["self_ms"]).all()


def test_the_table_is_sorted_and_cut(seen):
    assert seen.operators(top=2)["self_ms"].is_monotonic_decreasing
    assert len(seen.operators(top=2)) == 2


def test_launches_on_a_cpu_are_the_outermost_operators(seen):
    assert seen.kernels() == 0
    assert seen.launches() == 3


def test_the_flame_chart_has_callees_under_callers(seen):
    figure = seen.flame()
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert any("matmul" in text for text in texts)
    assert figure.axes[0].get_xlabel() == "time in this call (ms)"


def test_the_trace_file_is_one_that_perfetto_reads(seen, tmp_path):
    page = json.loads(seen.save_trace(tmp_path / "trace.json").read_text())
    assert "aten::mm" in {event.get("name") for event in page["traceEvents"]}


def inner():
    return sum(range(20_000))


def outer():
    return inner() + inner()


def test_the_call_tree_puts_callees_inside_their_callers():
    boxes = _call_tree(outer)
    by_name = {name.split()[-1]: (depth, start, start + width) for depth, start, width, name in boxes}
    assert [name.split()[-1] for *_, name in boxes] == ["sum", "inner", "sum", "inner", "outer"]
    assert [by_name[name][0] for name in ("outer", "inner", "sum")] == [0, 1, 2]
    assert by_name["outer"][1] <= by_name["inner"][1] <= by_name["inner"][2] <= by_name["outer"][2]


def test_the_call_tree_survives_an_exception_and_takes_its_hook_away():
    import sys

    def fails():
        return int("x")

    with pytest.raises(ValueError):
        _call_tree(fails)
    assert sys.getprofile() is None


def test_the_prof_file_opens_in_pstats(tmp_path):
    result = profile_python(outer)
    stats = pstats.Stats(str(result.save(tmp_path / "run.prof")))
    assert any(name == "inner" for _, _, name in stats.stats)
    assert result.flame()._repr_png_().startswith(b"\x89PNG")
