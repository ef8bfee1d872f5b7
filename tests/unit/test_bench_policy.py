"""The bench of the policy: every contestant really does the job, and a peer that is not installed is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from memcon.clock import SystemClock
from memcon.errors import MissingExtraError
from memcon.learning.shard import Handled
from memcon.policy_types import DecideReply, DecideRequest
from memcon_platform.bench import policy
from memcon_platform.bench.contestants import CONTESTANTS, Contestant, context_keys, reward_of
from memcon_platform.bench.policy import measure_policies
from memcon_platform.bench.sharing import Throughput, together
from memcon_platform.bench.states import Populated


@pytest.mark.parametrize("name", CONTESTANTS)
def test_every_contestant_learns_the_best_arm_of_each_context(name: str) -> None:
    keys = context_keys(5)
    assert len(set(keys)) == 5
    try:
        player = CONTESTANTS[name](keys)
    except MissingExtraError as error:
        pytest.skip(str(error))
    chosen = [(context, player.play(number, context)) for number in range(2_000) for context in [number % 5]]
    late = chosen[1_000:]
    right = sum(arm == context % 9 for context, arm in late) / len(late)
    # Epsilon-greedy explores a tenth; by chance one in nine is right.
    assert right > 0.8


def test_the_best_arm_of_a_context_is_the_only_one() -> None:
    for context in range(9):
        assert max(range(9), key=lambda arm: reward_of(context, arm)) == context
        assert all(-0.5 <= reward_of(context, arm) <= 1.3 for arm in range(9))


def test_rounds_are_interleaved_and_the_first_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[tuple[str, int]] = []

    def recorder(name: str) -> Callable[[Sequence[str]], Contestant]:
        class Recorder:
            def play(self, number: int, context: int) -> int:
                played.append((name, number))
                return context

        return lambda _keys: Recorder()

    def absent(_keys: Sequence[str]) -> Contestant:
        raise MissingExtraError("river", "bench")

    monkeypatch.setattr(policy, "CONTESTANTS", {"shard": recorder("shard"), "rule": recorder("rule"), "river": absent})
    found = measure_policies(contexts=3, decisions=2, rounds=2, many_keys=10)

    assert [name for name, _ in played] == ["shard", "shard", "rule", "rule"] * 3
    assert [number for name, number in played if name == "rule"] == list(range(6))
    assert {name: len(rounds) for name, rounds in found.rounds_us.items()} == {
        "shard": 2, "rule": 2, "decide_300_states": 2, "decide_1m_states": 2
    }  # fmt: skip
    assert found.absent == {"river": "river is not installed; run: pip install 'memcon[bench]'"}
    assert set(found.ratios) == {"cost_1m_states_vs_300"}


def test_a_ratio_above_one_says_that_we_are_faster() -> None:
    found = policy.PolicyBench(rounds_us={"shard": [40.0], "rule": [10.0], "river": [20.0], "vw": [80.0]})
    assert found.ratios == {
        "inprocess_vs_vw": 8.0, "inprocess_vs_river": 2.0, "shard_vs_vw": 2.0, "shard_vs_river": 0.5
    }  # fmt: skip


def test_a_ratio_is_taken_inside_each_round() -> None:
    # The machine was slow in the second round; the ratio of the medians would be 2.
    found = policy.PolicyBench(rounds_us={"rule": [1.0, 30.0, 2.0], "vw": [10.0, 300.0, 4.0]})
    assert found.ratios == {"inprocess_vs_vw": 10.0}


def test_every_decide_of_the_many_keys_is_at_a_key_that_was_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    populated, clock = Populated(1_000), SystemClock()
    decided: list[tuple[str, bool]] = []
    decide = populated.shard.decide

    def recorder(request: DecideRequest) -> Handled[DecideReply]:
        handled = decide(request)
        decided.append((request.keys[0], handled.reply.forced))
        return handled

    monkeypatch.setattr(populated.shard, "decide", recorder)
    populated.decide(0, 2_000, clock)

    assert len(decided) == 2_000
    assert not any(forced for _, forced in decided)
    # Uniform draws hit 86 % of 1,000 keys in 2,000 tries; a Weyl sequence spreads wider.
    assert len({key for key, _ in decided}) > 860
    assert populated.shard.num_keys("bench") == 1_000
    assert populated.shard.open_ids("bench") == []


def test_rounds_of_a_throughput_are_weighed_by_their_time() -> None:
    one = Throughput(tasks=100, elapsed_s=1.0, cpu={"driver": 1.0})
    other = Throughput(tasks=100, elapsed_s=3.0, cpu={"driver": 0.2, "worker": 0.4})
    both = together([one, other])
    assert both.tasks_per_s == 50.0
    assert both.cpu == {"driver": pytest.approx(0.4), "worker": pytest.approx(0.3)}
