"""The arms of Table 7, the sets of our own, and their identity (MC-12 to MC-14, MC-17, MC-28)."""

from __future__ import annotations

import dataclasses

import pytest

from memcon.errors import UnknownNameError
from memcon.learning import actions
from memcon.types import ActionSet, MemoryAction, Operation

DEFAULT = actions.action_set("default")


def test_default_arms_are_those_of_table_7_in_its_order() -> None:
    rows = [(arm.action_id, arm.op.value, arm.top_k, arm.insight_k, arm.hop) for arm in DEFAULT.actions]

    assert rows == [
        ("retrieve_shallow", "retrieve", 1, 3, 1),
        ("retrieve_medium", "retrieve", 2, 5, 1),
        ("retrieve_deep", "retrieve", 3, 8, 2),
        ("plan_inject", "plan_inject", 1, 3, None),
        ("re_retrieve", "re_retrieve", 2, 5, 2),
        ("consolidate", "consolidate", None, None, None),
        ("forget", "forget", None, None, None),
        ("insight_only", "retrieve", 1, 2, 0),
        ("noop", "noop", None, None, None),
    ]


def test_only_re_retrieve_changes_the_query() -> None:
    assert [arm.action_id for arm in DEFAULT.actions if arm.query_suffix] == ["re_retrieve"]


def test_priors_are_those_of_table_6() -> None:
    assert actions.priors(DEFAULT, warm_start=True) == (0.5, 0.5, 0.5, 0.3, 0.1, 0.0, -0.1, 0.5, -0.2)
    assert actions.priors(DEFAULT, warm_start=False) == (0.0,) * 9
    assert set(actions.PRIORS) == set(Operation)


def test_fingerprint_ignores_order_and_name_but_no_parameter() -> None:
    turned = ActionSet(name="other", actions=tuple(reversed(DEFAULT.actions)))
    deeper = dataclasses.replace(DEFAULT.actions[0], hop=2)
    changed = ActionSet(name="default", actions=(deeper, *DEFAULT.actions[1:]))

    assert actions.fingerprint(turned) == actions.fingerprint(DEFAULT)
    assert actions.fingerprint(changed) != actions.fingerprint(DEFAULT)


def test_unknown_action_set_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match=r"'defualt'.*did you mean 'default'"):
        actions.action_set("defualt")


# --- the sets beside Table 7 -----------------------------------------------------------------------------------------


def test_sets_of_the_paper_and_ours_can_be_chosen() -> None:
    assert actions.action_set_names() == ["compact", "default", "plan_first", "retrieval_heavy"]
    assert (
        len({actions.fingerprint(actions.action_set(name)) for name in ("compact", "default", "retrieval_heavy")}) == 3
    )


def test_arm_id_means_the_same_parameters_in_every_set() -> None:
    meaning: dict[str, MemoryAction] = {}
    for name in actions.action_set_names():
        chosen = actions.action_set(name)
        assert len(set(chosen.action_ids)) == len(chosen.actions)
        for arm in chosen.actions:
            plain = dataclasses.replace(arm, only_when_stuck=False)
            assert meaning.setdefault(arm.action_id, plain) == plain


def test_compact_is_what_differs_within_a_task_and_looks_again_only_when_stuck() -> None:
    compact = actions.action_set("compact")

    assert set(compact.action_ids) == {
        "retrieve_shallow", "retrieve_medium", "retrieve_deep", "plan_inject", "insight_only", "noop", "re_retrieve",
    }  # fmt: skip
    assert [arm.action_id for arm in compact.actions if arm.only_when_stuck] == ["re_retrieve"]
    assert not any(arm.op in {Operation.CONSOLIDATE, Operation.FORGET} for arm in compact.actions)


def test_mark_of_being_stuck_is_part_of_the_identity() -> None:
    compact = actions.action_set("compact")
    unmarked = dataclasses.replace(
        compact, actions=tuple(dataclasses.replace(arm, only_when_stuck=False) for arm in compact.actions)
    )

    assert actions.fingerprint(unmarked) != actions.fingerprint(compact)


def test_plan_first_is_the_default_with_the_plan_before_all_retrieval() -> None:
    chosen = actions.action_set("plan_first")
    first = dict(zip(chosen.action_ids, actions.priors(chosen, warm_start=True), strict=True))

    assert actions.fingerprint(chosen) == actions.fingerprint(DEFAULT)
    assert chosen.action_ids[0] == "plan_inject"
    assert max(first, key=first.__getitem__) == "plan_inject"
    others = {arm: prior for arm, prior in first.items() if arm != "plan_inject"}
    table_6 = dict(zip(DEFAULT.action_ids, actions.priors(DEFAULT, warm_start=True), strict=True))
    assert others == {arm: prior for arm, prior in table_6.items() if arm != "plan_inject"}
    assert actions.priors(chosen, warm_start=False) == (0.0,) * 9


def test_retrieval_heavy_asks_how_much_and_nothing_else() -> None:
    chosen = actions.action_set("retrieval_heavy")
    depths = [arm.top_k for arm in chosen.actions if arm.op is Operation.RETRIEVE and arm.action_id != "insight_only"]

    assert depths == [1, 2, 3, 5, 8]
    assert {arm.op for arm in chosen.actions} == {Operation.RETRIEVE, Operation.RE_RETRIEVE, Operation.NOOP}


@pytest.mark.parametrize("name", actions.action_set_names())
def test_own_priors_are_of_arms_that_the_set_has(name: str) -> None:
    chosen = actions.action_set(name)

    assert set(chosen.priors) <= set(chosen.action_ids)
