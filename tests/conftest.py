"""How Hypothesis runs here: the same examples every time; more of them on demand.

`pytest --hypothesis-profile=explore` looks for new counterexamples.
"""

from hypothesis import settings

settings.register_profile("fast", max_examples=25, deadline=None, derandomize=True, database=None)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile("fast")
