"""The arms of Table 7 and their identity (MC-12, MC-13, MC-17, MC-28)."""

from __future__ import annotations

import dataclasses

import pytest

from memcon.errors import UnknownNameError
from memcon.learning import actions
from memcon.types import ActionSet, Operation

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
