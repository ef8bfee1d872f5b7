"""A journal on disk from version 1 of the events: it must stay readable, and fold to the same bits, for ever.

A change here is a change of the format or of the policy: raise the schema version, then write the files anew with
`python tests/golden/test_policy_golden.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from memcon import ids
from memcon.learning import actions
from memcon.learning.decision_token import Claims, sign
from memcon.learning.events import Event, decode_event, encode_event
from memcon.learning.exploration import UcbConfig
from memcon.learning.shard import PolicyShard
from memcon.policy_types import DecideRequest
from memcon.testing.policy import outcome_request

SECRET = b"a secret of the tests"
JOURNAL = Path(__file__).parent / "policy_journal.jsonl"
TABLE = Path(__file__).parent / "policy_table.json"
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


def _lines(events: list[Event]) -> str:
    return "".join(json.dumps([*encode_event(event)]) + "\n" for event in events)


def _table(shard: PolicyShard) -> str:
    return json.dumps(shard.dump("golden"), indent=1) + "\n"


def test_history_is_journaled_as_it_was() -> None:
    events, _ = _history()

    assert _lines(events) == JOURNAL.read_text()


def test_journal_on_disk_folds_to_the_table_on_disk() -> None:
    shard = PolicyShard(0, 1, SECRET)
    for line in JOURNAL.read_text().splitlines():
        kind, text = json.loads(line)
        shard.apply(decode_event(kind, text))

    assert _table(shard) == TABLE.read_text()
    assert _table(_history()[1]) == TABLE.read_text()


def test_identities_are_what_they_were() -> None:
    claims = Claims(table="t", keys=("k",), action_id="noop", position=2, decision_id="d", episode_id="e")

    assert actions.fingerprint(actions.action_set("default")) == "ee81b01a0b2ea8ec"
    assert sign(SECRET, claims) == (
        "_R7VQD5mA74aMHYg9y-tK48kOFcXu5JucO_88dvtPPgWzEsInQiLFsiayJdLCJub29wIiwyLCJkIiwiZSJd"
    )


if __name__ == "__main__":
    written, final = _history()
    JOURNAL.write_text(_lines(written))
    TABLE.write_text(_table(final))
