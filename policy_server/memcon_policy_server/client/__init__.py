"""The policy as agents see it: for live agents (`LivePolicy`, `SyncPolicy`), over HTTP (`http`), in-process (`local`).

Needs one HTTP library; neither Ray nor numpy.
"""

from memcon_policy_server.client.live import Counters, LiveDecision, LivePolicy
from memcon_policy_server.client.spool import Refusal
from memcon_policy_server.client.sync import SyncPolicy

__all__ = ["Counters", "LiveDecision", "LivePolicy", "Refusal", "SyncPolicy"]
