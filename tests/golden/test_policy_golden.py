"""A journal on disk from version 1 of the events: it must stay readable, and fold to the same bits, for ever.

A change here is a change of the format or of the policy: raise the schema version, then write the files anew with
`PYTHONPATH=tests python tests/golden/test_policy_golden.py`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memcon import ids
from memcon.learning import actions
from memcon.learning.decision_token import Claims, sign, verify
from memcon.learning.events import Event, decode_event, encode_event
from memcon.learning.exploration import UcbConfig, UniformConfig
from memcon.learning.shard import Handled, PolicyShard
from memcon.policy_types import DecideReply, DecideRequest, TableImport
from memcon.testing.policy import cancel_request, outcome_request
from support.key_chains import chain

SECRET = b"a secret of the tests"
JOURNAL = Path(__file__).parent / "policy_journal.jsonl"
TABLE = Path(__file__).parent / "policy_table.json"
CHAIN_JOURNAL = Path(__file__).parent / "policy_chain_journal.jsonl"
CHAIN_TABLE = Path(__file__).parent / "policy_chain_table.json"
LIFE_JOURNAL = Path(__file__).parent / "policy_life_journal.jsonl"
LIFE_TABLE = Path(__file__).parent / "policy_life_table.json"
KEYS = ("paper/1|goal_type=put", "paper/1|goal_type=h%C3%A9at")


def _history() -> tuple[list[Event], PolicyShard]:
    """40 episodes of three decisions: masks, costs, a cancelled episode, a repeated place, open ends."""
    shard = PolicyShard(0, 1, SECRET)
    events: list[Event] = [*shard.open_table("golden", UcbConfig().learning_settings()).events]
    for episode in range(40):
        replies = []
        for position in range(3):
            request = DecideRequest(
                table="golden",
                decision_id=ids.decision_id(f"episode {episode}", position),
                episode_id=f"episode {episode}",
                position=position,
                keys=(KEYS[(episode + position) % 2],),
                draw=ids.draw64("golden", episode, position),
                allowed=("retrieve_shallow", "insight_only", "noop") if episode % 5 == 4 else None,
            )
            handled = shard.decide(request)
            events.extend(handled.events)
            replies.append(handled.reply)
        if episode % 10 == 7:
            events.extend(shard.cancel_episode("golden", f"episode {episode}").events)
        elif episode < 38:
            reward = 1.15 if ids.draw64("reward", episode) % 2 else -0.5
            for position, reply in enumerate(replies):
                outcome = outcome_request(reply, reward, position=position, num_decisions=3, cost=0.01)
                events.extend(shard.outcome(outcome).events)
    return events, shard


def _chain_history() -> tuple[list[Event], PolicyShard]:
    """A warm table over two keys a decision, a capped mean and a floor: credited, open and moved decisions."""
    settings = UniformConfig(
        action_set="compact",
        state_key="benchmark+goal_type",
        pooling=("benchmark",),
        estimator="capped_mean",
        count_cap=2,
        exploration_floor=0.25,
    ).learning_settings()
    shard = PolicyShard(0, 1, SECRET)
    events: list[Event] = [*shard.open_table("golden", settings).events]
    put, heat = chain("house", "put", settings=settings), chain("house", "héat|", settings=settings)
    known: dict[str, dict[str, str | int]] = {
        "noop": {"q": (0.25).hex(), "taken": 3, "credited": 2, "squares": (1 / 3).hex()}
    }
    warm = TableImport(table="golden", source="another run", numbers={put[0]: known, put[1]: known})
    events.extend(shard.import_table(warm).events)
    for number in range(12):
        request = DecideRequest(
            table="golden",
            decision_id=f"d{number}",
            episode_id=f"e{number}",
            position=0,
            keys=(put, heat)[number % 2],
            draw=ids.draw64("golden chain", number),
        )
        handled = shard.decide(request)
        events.extend(handled.events)
        if number == 5:
            events.extend(shard.decide(dataclasses.replace(request, keys=put)).events)
        elif number < 10:
            events.extend(shard.outcome(outcome_request(handled.reply, 1 / (number + 3), cost=0.01)).events)
    return events, shard


def _life_history() -> tuple[list[Event], PolicyShard]:
    """Ends of every kind under a bound on them, and a table that is frozen and thawed on the way."""
    shard = PolicyShard(0, 1, SECRET)
    settings = dataclasses.replace(UcbConfig().learning_settings(), closed_kept=20)
    events: list[Event] = [*shard.open_table("golden", settings).events]
    ends: Sequence[Callable[[DecideReply], Handled[Any]]] = (
        lambda reply: shard.outcome(outcome_request(reply, 1.15)),
        lambda reply: shard.cancel(cancel_request(reply)),
        lambda reply: shard.expire("golden", reply.decision_id, None),
        lambda reply: shard.expire("golden", reply.decision_id, -0.125),
    )
    for number in range(60):
        request = DecideRequest(
            table="golden",
            decision_id=f"d{number}",
            episode_id=f"e{number}",
            position=0,
            keys=(KEYS[number % 2],),
            draw=ids.draw64("golden life", number),
        )
        handled = shard.decide(request)
        events.extend(handled.events)
        if number % 5 < 4:
            events.extend(ends[number % 5](handled.reply).events)
        if number % 5 in {2, 3} and number > 30:
            # Late, or recorded beside the default.
            events.extend(shard.outcome(outcome_request(handled.reply, 1 / number)).events)
        if number % 20 == 10:
            events.extend(shard.freeze_table("golden", number < 40).events)
    # Before the last change it was taken, and it is still open.
    events.extend(shard.freeze_table("golden", True).events)
    events.extend(shard.expire("golden", "d59", None).events)
    return events, shard


def _lines(events: list[Event]) -> str:
    return "".join(json.dumps([*encode_event(event)]) + "\n" for event in events)


def _table(shard: PolicyShard) -> str:
    return json.dumps(shard.dump("golden"), indent=1) + "\n"


def _folded(journal: Path) -> PolicyShard:
    shard = PolicyShard(0, 1, SECRET)
    for line in journal.read_text().splitlines():
        kind, text = json.loads(line)
        shard.apply(decode_event(kind, text))
    return shard


def test_history_is_journaled_as_it_was() -> None:
    assert _lines(_history()[0]) == JOURNAL.read_text()
    assert _lines(_chain_history()[0]) == CHAIN_JOURNAL.read_text()
    assert _lines(_life_history()[0]) == LIFE_JOURNAL.read_text()


def test_journal_on_disk_folds_to_the_table_on_disk() -> None:
    assert _table(_folded(JOURNAL)) == TABLE.read_text()
    assert _table(_history()[1]) == TABLE.read_text()


def test_journal_of_chains_folds_to_its_table_on_disk() -> None:
    assert _table(_folded(CHAIN_JOURNAL)) == CHAIN_TABLE.read_text()
    assert _table(_chain_history()[1]) == CHAIN_TABLE.read_text()


def test_journal_of_all_lives_folds_to_its_table_on_disk() -> None:
    assert _table(_folded(LIFE_JOURNAL)) == LIFE_TABLE.read_text()
    assert _table(_life_history()[1]) == LIFE_TABLE.read_text()


def test_identities_are_what_they_were() -> None:
    claims = Claims(table="t", keys=("k",), action_id="noop", position=2, decision_id="d", episode_id="e")

    assert {name: actions.fingerprint(actions.action_set(name)) for name in actions.action_set_names()} == {
        "compact": "d915c91ba7107185",
        "default": "ee81b01a0b2ea8ec",
        "plan_first": "ee81b01a0b2ea8ec",
        "retrieval_heavy": "19b88d98f616b680",
    }
    # Forms 1 and 2 stand in the outboxes of stopped runs.
    old = "_R7VQD5mA74aMHYg9y-tK48kOFcXu5JucO_88dvtPPgWzEsInQiLFsiayJdLCJub29wIiwyLCJkIiwiZSJd"
    assert verify(SECRET, old) == claims
    assert sign(SECRET, claims) == "3.d618de5eb5b5944efaa0c19c39698dc4~t~noop~2~d~e~k"
    chained = dataclasses.replace(claims, keys=("f/1|b=x|g=y", "c/1|b=x"))
    old_chained = (
        "FZBMWtzgHHHLQDBjEdqFe2B5GS6mBFVUgvqCjYyMCxsWzIsInQiLFsiZi8xfGI9eHxnPXkiLFsiYy8xIiwxXV0sIm5vb3AiLDIsImQiLCJlIl0"
    )
    assert verify(SECRET, old_chained) == chained
    assert sign(SECRET, chained) == "3.74d29dd471191950477fd0c6d5fd83ce~t~noop~2~d~e~f/1|b=x|g=y~c/1,1"
    # A text that a plain body cannot hold.
    assert (
        sign(SECRET, dataclasses.replace(claims, table="t~"))
        == "3.3e63896cffec4edbf2efa2014ab60b19WzEsInR-IixbImsiXSwibm9vcCIsMiwiZCIsImUiXQ"
    )


if __name__ == "__main__":
    for (written, final), journal, table in (
        (_history(), JOURNAL, TABLE),
        (_chain_history(), CHAIN_JOURNAL, CHAIN_TABLE),
        (_life_history(), LIFE_JOURNAL, LIFE_TABLE),
    ):
        journal.write_text(_lines(written))
        table.write_text(_table(final))
