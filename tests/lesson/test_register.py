"""The register of claims: where a bound comes from, and what it was before."""

from datetime import date

import pytest

from labkit.ledger.rows import Claim
from labkit.lesson import cards, claims

ROW = Claim(run_key="r", claim_id="c", sentence="s", verdict="fails", value=1.0, low=0.5, high=1.5)


def test_a_claim_is_found_by_its_id_also_where_the_run_fills_in_a_part_of_it(monkeypatch):
    fast = claims.Entry("Batch {n} is fast", "low >= 2", date(2026, 11, 23))
    monkeypatch.setattr(claims, "register", lambda: {"07_x": {"pays-{n}": fast}})
    assert claims.entry("07_x", "pays-32") is fast
    assert claims.entry("07_x", "pays-") is None
    assert claims.entry("07_x", "what pays-32") is None
    assert claims.entry("08_y", "pays-32") is None


def test_a_card_says_why_the_bound_is_where_it_is_and_which_it_was_before():
    old = {"until": date(2026, 11, 22), "rule": "low >= 1.3", "became": "Failed in 3 of 5 seeds."}
    shown = cards.plain(
        cards.card("claimed", ROW, claims.Entry("s", "low >= 2", date(2026, 11, 23), "As <b>", "", (old,)))
    )
    assert "Why this bound, since 2026-11-23" in shown
    assert "As <b>" in shown
    assert "Until 2026-11-22: low >= 1.3. Failed in 3 of 5 seeds." in shown
    assert "Why this bound" not in cards.card("claimed", ROW, None)


@pytest.mark.parametrize("lesson", claims.register())
def test_an_entry_that_was_changed_names_when_and_what_became_of_the_old_rule(lesson):
    for claim in claims.register()[lesson].values():
        dates = [claim.since, *(old["until"] for old in claim.before)]
        assert dates == sorted(dates, reverse=True)
        assert all(old["rule"] and old["became"] for old in claim.before)


def test_the_page_counts_what_held_out_seeds_said_and_nothing_else(monkeypatch):
    seen = [
        "quick, seeds 3 to 7: holds in 3 of 5, fails in 1, open in 1; lab, seeds 0 to 4: holds in 0 of 5, fails in 5",
        "seeds 3 to 7 of lab, Intel Xeon with AMX: holds in 4 of 5, open in 1; lab, seed 0: fails, 1 x",
        "quick, seeds 3 to 7: holds in 5 of 5",
        "lab, seed 0: holds, 2 x",
    ]
    entries = {
        str(place): claims.Entry("s", "low > 0", date(2026, 11, 23), seen=text) for place, text in enumerate(seen)
    }
    monkeypatch.setattr(claims, "register", lambda: {"07_x": entries})
    page = " ".join(claims.as_page().split())
    assert "Seeds 3 to 7 of 3 claims" in page
    assert "Of 15 verdicts 12 hold, 1 fail, 2 are open. 2 claims do not come out alike in all five; 1 of them" in page
