"""FD-KVC Lab: see, compare and judge KV-cache eviction policies for dialogs.

Each public name is loaded on first use; `PolicyCache` needs torch and transformers.

Examples
--------
>>> import fdkvc
>>> dialogs = fdkvc.generate(fdkvc.SCENARIOS["mixed"], 2, seed=0)
>>> trace = fdkvc.simulate(fdkvc.policy_named("fd-kvc"), dialogs, 56)
>>> fdkvc.METRICS["retention"].late(trace, dialogs).shape
(2,)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fdkvc.conversations.formats import read_file as read_file
    from fdkvc.conversations.lexical import LexicalRecordings as LexicalRecordings
    from fdkvc.conversations.replay import Replay as Replay
    from fdkvc.conversations.replay import replay as replay
    from fdkvc.core.dialogs import DialogBatch as DialogBatch
    from fdkvc.engine.metrics import METRICS as METRICS
    from fdkvc.engine.online import OnlineCache as OnlineCache
    from fdkvc.engine.simulate import simulate as simulate
    from fdkvc.models.transformers.cache import PolicyCache as PolicyCache
    from fdkvc.paper.benchmark import Benchmark as Benchmark
    from fdkvc.paper.benchmark import run_benchmark as run_benchmark
    from fdkvc.policies import Policy as Policy
    from fdkvc.policies import policy_named as policy_named
    from fdkvc.policies import read_policy as read_policy
    from fdkvc.synthetic.draw import generate as generate
    from fdkvc.synthetic.scenarios import SCENARIOS as SCENARIOS
    from fdkvc.synthetic.scenarios import custom_scenario as custom_scenario

__version__ = "2.1.0"

_NAMES = {
    "conversations.formats": ("read_file",),
    "conversations.lexical": ("LexicalRecordings",),
    "core.dialogs": ("DialogBatch",),
    "paper.benchmark": ("Benchmark", "run_benchmark"),
    "conversations.replay": ("Replay", "replay"),
    "models.transformers.cache": ("PolicyCache",),
    "policies": ("Policy", "policy_named", "read_policy"),
    "engine.metrics": ("METRICS",),
    "engine.online": ("OnlineCache",),
    "engine.simulate": ("simulate",),
    "synthetic.draw": ("generate",),
    "synthetic.scenarios": ("SCENARIOS", "custom_scenario"),
}
_MODULES: dict[str, str] = {}
for _module, _names in _NAMES.items():
    _MODULES |= dict.fromkeys(_names, _module)

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
