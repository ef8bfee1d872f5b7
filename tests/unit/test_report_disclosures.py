"""What the numbers of a run can be no evidence of, in reports and in studies."""

from __future__ import annotations

from pathlib import Path

from memcon import registry
from memcon_platform.report import build
from memcon_platform.report.disclosures import disclosures
from memcon_platform.report.json_form import to_json
from support.episodes import FakeCell
from support.report_runs import Played, by_family, write_played

ALL = by_family(audit=True, household=True)


def test_constructed_families_are_named(tmp_path: Path) -> None:
    mix = build(write_played(tmp_path / "mix", [Played(cell=FakeCell(benchmark="mix"), won=ALL)]))
    plain = build(write_played(tmp_path / "plain", [Played(cell=FakeCell(), won=ALL)]))
    unknown = build(write_played(tmp_path / "unknown", [Played(cell=FakeCell(benchmark="gone"), won=ALL)]))

    # The mix has more of them; tasks of this run are of `audit` and `household` only.
    told = "Constructed families, made to show what memory can do: audit (memory does harm). They show a mechanism"
    assert any(note.startswith(told) for note in mix.disclosures)
    assert to_json(mix)["disclosures"] == list(mix.disclosures)
    assert not any("onstructed" in note for note in plain.disclosures)
    assert any(
        "tasks of 'gone' were constructed to show something cannot be told" in note for note in unknown.disclosures
    )


def test_every_constructed_family_of_the_mix_says_what_it_was_built_to_show() -> None:
    mix = registry.plugin("benchmark", "mix").build(registry.configure("benchmark", "mix", {}))

    assert set(mix.constructed) == {"habit", "audit", "recur", "trivia"}
    cell = FakeCell(benchmark="mix", backbone="a-model").planned(0)
    (told,) = disclosures([cell], {"household", "trivia", "habit"})
    assert "habit (more memory is better), trivia (memory is useless)." in told
    assert disclosures([cell], {"household"}) == ()
