import hostile_data
import pytest


@pytest.mark.slow
def test_every_damaged_or_hostile_file_is_a_clear_error_and_changes_nothing(tmp_path):
    results = hostile_data.survey(tmp_path)
    assert len(results) >= 100
    assert {name: problem for name, problem in results.items() if problem} == {}


def test_a_reader_that_trusts_everything_is_led_out_of_its_folder_and_runs_programs(tmp_path):
    results = hostile_data.survey(
        tmp_path, hostile_data.read_naively, list(hostile_data.programs())
    )
    assert [name for name, problem in results.items() if problem is None] == []
    changed = {name.partition(": ")[2] for name, problem in results.items() if "victim'" in problem}
    assert changed >= {
        "a file through a link",
        "calls os.system",
        "calls eval",
        "calls an instance",
    }
    assert "escaped" in results["cifar-10-python.tar.gz: climbs out"]


def test_the_judge_accepts_only_errors_that_name_the_file_and_the_remedy():
    good = hostile_data.LabError(
        "f.gz is cut", expected="9 bytes", found="8 bytes", fix="fetch it again"
    )
    assert hostile_data.unclear(good, "f.gz") is None
    assert "the name g.gz" in hostile_data.unclear(good, "g.gz")
    assert "fix" in hostile_data.unclear(
        hostile_data.LabError("f.gz", expected="9", found="8"), "f.gz"
    )
