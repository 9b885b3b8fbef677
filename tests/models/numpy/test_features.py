"""What is known of tokens, turn by turn."""

import numpy as np

from fdkvc.core.attention import KINDS
from fdkvc.models.numpy.features import with_new
from fdkvc.models.numpy.tokens import MARK

CALL, RESULT, UNMARKED = KINDS.index("call"), KINDS.index("result"), -1


def test_a_result_has_the_tool_of_its_call_however_it_is_read() -> None:
    turns = [
        ([MARK, CALL, MARK, CALL, MARK, RESULT], [0, 7, 0, 8, 0, 0]),
        ([UNMARKED, UNMARKED, MARK, RESULT], [0, 0, 0, 0]),  # the rest of a result, and the next
        ([MARK, RESULT], [0, 0]),  # of no call
    ]
    features: dict[str, np.ndarray] = {}
    for kinds, tools in turns:
        features = with_new(features, {"kinds": np.array(kinds), "tools": np.array(tools)})
    assert features["tools"].tolist() == [0, 7, 0, 8, 0, 7, 7, 7, 0, 8, 0, 0]
