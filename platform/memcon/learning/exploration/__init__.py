"""Learning rules: how a table chooses an arm.

A rule is a plug-in of kind `policy`. Its config dataclass gives `learning_settings()`, which the table journals; its
`build(settings)` gives the `Rule` back from them, so that a fold needs no config file. A rule holds no state and no
generator: the same views, arms and draw give the same choice on every machine.

`rule` is the port, `draws` all chance, `evidence` the estimates over a chain of keys, `learned` what every config
shares. The rules: `paper` (ucb), `static` (fixed, uniform, none, every_arm), `greedy` (greedy, epsilon_greedy),
`bayes_ucb`, `thompson` (thompson, pooled).
"""

from __future__ import annotations

from memcon.learning.exploration.paper import UCB, UcbConfig
from memcon.learning.exploration.rule import Choice, Rule, build_rule
from memcon.learning.exploration.static import FIXED, NONE, UNIFORM, FixedConfig, NoneConfig, UniformConfig

__all__ = [
    "FIXED",
    "NONE",
    "UCB",
    "UNIFORM",
    "Choice",
    "FixedConfig",
    "NoneConfig",
    "Rule",
    "UcbConfig",
    "UniformConfig",
    "build_rule",
]
