"""The policy port under test: the contract body that every client passes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from memcon.errors import ConfigError, ConflictError, NotFoundError
from memcon.learning.exploration import UcbConfig
from memcon.policy_types import DecideReply, DecideRequest, LearningSettings, TableImport
from memcon.protocols import PolicyClient
from memcon.testing.contract import Run, accepts, expect, expect_equal, refuses
from memcon.testing.policy import decide_request, state_keys, table_import
from memcon.testing.policy_outcomes import OutcomeSuite

__all__ = ["PolicyClientContract"]

_OPEN, _DECIDE, _IMPORT = "PolicyClient.open_table", "PolicyClient.decide", "PolicyClient.import_table"


def _together(run: Run, client: PolicyClient, requests: list[DecideRequest]) -> list[DecideReply]:
    """The replies to `requests`, which are open at the same time."""

    async def decide() -> list[DecideReply]:
        return await asyncio.gather(*(client.decide(request) for request in requests))

    return run(decide())


class PolicyClientContract(OutcomeSuite):
    """What every PolicyClient does. Override the fixture `client`; it gives a client without any table.

    The policy under test is `ucb` with its defaults on the arms of Table 7.
    """

    # First visits by prior, then arm order (MC-27).
    FIRST_VISITS = (
        "retrieve_shallow",
        "retrieve_medium",
        "retrieve_deep",
        "insight_only",
        "plan_inject",
        "re_retrieve",
        "consolidate",
        "forget",
        "noop",
    )

    # --- tables and decisions -----------------------------------------------------------------------------------------

    def test_client_opens_a_table_again_with_equal_settings(
        self, run: Run, opened: PolicyClient, settings: LearningSettings
    ) -> None:
        with accepts(_OPEN, wants="opens a table again with equal settings, without effect"):
            run(opened.open_table("table", settings))
        arm = run(opened.decide(decide_request(1))).action_id
        expect_equal(arm, "retrieve_shallow", _OPEN, wants="opens a table again with equal settings, without effect")

    def test_client_refuses_other_settings_and_names_the_field(self, run: Run, opened: PolicyClient) -> None:
        wants = "refuses other settings than the table has, and names the field with both values"
        with refuses(ConflictError, _OPEN, wants=wants, naming="alpha: recorded 0.15, asked 0.5"):
            run(opened.open_table("table", UcbConfig(alpha=0.5).learning_settings()))

    def test_client_finds_no_table_that_was_never_opened(self, run: Run, opened: PolicyClient) -> None:
        with refuses(NotFoundError, _DECIDE, wants="refuses a table that was never opened", naming="other"):
            run(opened.decide(decide_request(1, table="other")))

    def test_client_visits_the_arms_of_a_key_by_prior_then_order(self, run: Run, opened: PolicyClient) -> None:
        replies = [run(opened.decide(decide_request(n))) for n in range(9)]
        wants = "counts a decision when it is taken: the unvisited arms come by prior, then by arm order"
        expect_equal(tuple(reply.action_id for reply in replies), self.FIRST_VISITS, _DECIDE, wants=wants)
        for reply in replies:
            expect(
                reply.forced and reply.propensity == 1.0 and reply.tie_set == (reply.action_id,),
                _DECIDE,
                "tells an unvisited arm as forced, alone, with the propensity 1",
                met=reply,
            )

    def test_client_gives_the_same_answer_to_the_same_id(self, run: Run, opened: PolicyClient) -> None:
        first = run(opened.decide(decide_request(1)))
        again = run(opened.decide(decide_request(1)))
        other = run(opened.decide(decide_request(2)))
        expect_equal(again, first, _DECIDE, wants="gives the same answer to the same decision id")
        expect_equal(other.action_id, "retrieve_medium", _DECIDE, wants="counts a decision id once")

    def test_client_counts_each_of_many_decides_at_once(self, run: Run, opened: PolicyClient) -> None:
        replies = _together(run, opened, [decide_request(n) for n in range(9)])
        wants = "counts each of the decides that are open at the same time"
        expect_equal(sorted(reply.action_id for reply in replies), sorted(self.FIRST_VISITS), _DECIDE, wants=wants)

    def test_client_gives_many_streams_at_one_new_key_its_arms_in_prior_order(
        self, run: Run, opened: PolicyClient
    ) -> None:
        replies = _together(run, opened, [decide_request(n, key="new") for n in range(32)])
        # No outcome is there yet: what tells the streams apart is that each decision counts when it is taken.
        in_order = sorted(replies, key=lambda reply: reply.received)
        arms = tuple(reply.action_id for reply in in_order[:9])
        wants = "gives streams that ask at once the arms in the order of `received`"
        expect_equal(arms, self.FIRST_VISITS, _DECIDE, wants=wants)
        expect_equal([reply.forced for reply in in_order], [True] * 9 + [False] * 23, _DECIDE, wants=wants)

    def test_client_never_chooses_a_masked_arm(self, run: Run, opened: PolicyClient) -> None:
        allowed = ("forget", "noop")
        for n in range(6):
            request = replace(decide_request(n), draw=n, allowed=allowed, explain=False)
            reply = run(opened.decide(request))
            expect(reply.action_id in allowed, _DECIDE, f"chooses among {', '.join(allowed)} only", met=reply)
            expect(reply.per_arm is None, _DECIDE, "gives no values of arms unless asked", met=reply)

    @pytest.mark.parametrize("allowed", [(), ("noop", "retreive_deep")])
    def test_client_refuses_arms_that_cannot_be_chosen(
        self, run: Run, opened: PolicyClient, allowed: tuple[str, ...]
    ) -> None:
        with refuses(ConfigError, _DECIDE, wants=f"refuses the arms {allowed}", naming="allow"):
            run(opened.decide(replace(decide_request(1), allowed=allowed)))

    # --- a table that starts from another one -------------------------------------------------------------------------

    def test_client_starts_a_table_from_the_numbers_of_another(self, run: Run, opened: PolicyClient) -> None:
        # Enough keys to be at every shard.
        keys = state_keys(12)
        run(opened.import_table(table_import(keys)))
        for number, key in enumerate(keys):
            reply = run(opened.decide(decide_request(number, key=key)))
            wants = "takes the numbers over at every shard: the arm that has outcomes is no unvisited one"
            expect_equal(reply.action_id, "retrieve_shallow", _IMPORT, wants=wants)
            known = (reply.per_arm or {}).get("noop", {})
            found = [known.get(name) for name in ("q", "taken", "credited")]
            expect_equal(found, [0.75, 4.0, 4.0], _IMPORT, wants="takes value and counts over as they are")

    def test_client_imports_the_same_source_once(self, run: Run, opened: PolicyClient) -> None:
        request = table_import(state_keys(3))
        run(opened.import_table(request))
        for number, key in enumerate(state_keys(3)):
            run(opened.decide(decide_request(number, key=key)))
        # A launch that goes on: decisions were taken meanwhile.
        with accepts(_IMPORT, wants="is without effect when the same source comes again, decisions or not"):
            run(opened.import_table(request))
        reply = run(opened.decide(decide_request(9, key=state_keys(1)[0])))
        known = (reply.per_arm or {}).get("noop", {}).get("taken")
        wants = "is without effect when the same source comes again, decisions or not"
        expect_equal((reply.action_id, known), ("retrieve_medium", 4.0), _IMPORT, wants=wants)

    def test_client_refuses_to_mix_numbers(self, run: Run, opened: PolicyClient, settings: LearningSettings) -> None:
        run(opened.open_table("begun", settings))
        keys = state_keys(12)
        run(opened.import_table(table_import(keys)))
        for number, key in enumerate(keys):
            run(opened.decide(decide_request(number, table="begun", key=key)))
        for naming in ("an earlier run", "another run"):
            with refuses(ConflictError, _IMPORT, wants="refuses a second source, and names both", naming=naming):
                run(opened.import_table(table_import(keys, source="another run")))
        wants = "refuses a table that has decisions"
        with refuses(ConflictError, _IMPORT, wants=wants, naming="decisions already"):
            run(opened.import_table(table_import(keys, table="begun")))
        with refuses(NotFoundError, _IMPORT, wants="refuses a table that was never opened", naming="nowhere"):
            run(opened.import_table(table_import(keys, table="nowhere")))

    def test_client_refuses_numbers_of_another_kind_of_table(self, run: Run, opened: PolicyClient) -> None:
        good = table_import(state_keys(1))
        (key,) = good.numbers
        row = good.numbers[key]["noop"]
        refused = {
            "an empty key": table_import([""]),
            "an unknown arm": TableImport(table="table", source="s", numbers={key: {"nop": row}}),
            "a value that is no number": TableImport(
                table="table", source="s", numbers={key: {"noop": {**row, "q": "nan"}}}
            ),
            "more outcomes than decisions": TableImport(
                table="table", source="s", numbers={key: {"noop": {**row, "credited": 5}}}
            ),
        }
        for what, request in refused.items():
            with refuses(ConfigError, _IMPORT, wants=f"refuses {what}, and takes nothing over", naming="import"):
                run(opened.import_table(request))
        run(opened.import_table(good))

    def test_client_keeps_tables_apart(self, run: Run, opened: PolicyClient, settings: LearningSettings) -> None:
        run(opened.open_table("other", settings))
        first, second = (run(opened.decide(decide_request(1, table=table))) for table in ("table", "other"))
        arms = (first.action_id, second.action_id)
        expect_equal(arms, ("retrieve_shallow",) * 2, _DECIDE, wants="counts each table for itself")
        expect(first.token != second.token, _DECIDE, "signs the table into the token", met="two tables, one token")

    def test_client_closes_twice(self, run: Run, client: PolicyClient) -> None:
        run(client.close())
        with accepts("PolicyClient.close", wants="may be called twice"):
            run(client.close())
