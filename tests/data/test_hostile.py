import hostile_data


def test_every_damaged_or_hostile_file_is_a_clear_error_and_changes_nothing(tmp_path):
    results = hostile_data.survey(tmp_path)
    assert len(results) >= 100
    assert {name: problem for name, problem in results.items() if problem} == {}


def test_a_reader_that_trusts_everything_withstands_none_of_them(tmp_path):
    results = hostile_data.survey(tmp_path, hostile_data.NAIVE)
    assert [name for name, problem in results.items() if problem is None] == []
    changed = [name for name, problem in results.items() if problem.startswith("changed")]
    assert "cifar: pickle calls os.system" in changed
    assert "a.tar.gz: climbs out" in changed


def test_the_judge_accepts_only_errors_that_name_the_file_and_the_remedy():
    good = hostile_data.LabError("f.gz is cut", expected="9 bytes", found="8 bytes", fix="fetch it again")
    assert hostile_data.unclear(good, "f.gz") is None
    assert "the name g.gz" in hostile_data.unclear(good, "g.gz")
    assert "fix" in hostile_data.unclear(hostile_data.LabError("f.gz", expected="9", found="8"), "f.gz")
