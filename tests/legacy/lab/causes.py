"""Why unit tests of `tf.contrib` fail under `staging-tf1 run`."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """What a failing test and its error look like, and a sentence for the page."""

    test: str  # a regular expression, found in the test's name
    error: str  # a regular expression, found in the error
    why: str

    def fits(self, test: str, error: str) -> bool:
        """Whether it explains a failure."""
        return bool(re.search(self.test, test) and re.search(self.error, error))


CAUSES = (
    Cause(
        r"AttentionWrapperV2Test|testMultiAttentionNoAttentionLayer",
        "Not equal to tolerance",
        "It expects what random initial values give, and draws others. The likely reason is the code of Keras 2.",
    ),
    Cause(
        "testNTMCell",
        "Not equal to tolerance",
        "It expects what random initial values give. Their seeds come from the number of ops in the graph, and some "
        "functions make another number than in TensorFlow 1.15.",
    ),
    Cause(
        r"AdamWOptimizerTest|ExtendWithWeightDecayTest",
        "Not equal to tolerance",
        "It computes the expected values with numpy, from float16. numpy 2 promotes these to float64.",
    ),
    Cause(
        r"ZeroVarInitializer|IdTableWithHashBuckets|testBadParentValues",
        "AssertionError",
        "It expects another text in the error of TensorFlow.",
    ),
    Cause("ReplicaDeviceSetter", "Devices", "It expects the device that TensorFlow 1's `cached_session()` sets."),
    Cause("F1ScoreTest", "within 7 places", "It compares float32 with float64 to the last digit."),
    Cause("testAttentionCellWrapperFailures", "ASSERT_LIKE_RNNCELL", "It reads a private name that is gone."),
    Cause("test_newton_tnc_method", "Not equal", "TNC of newer releases of scipy ends early with losses of float32."),
    Cause(
        "test_save_load_layer",
        "TypeError: in user code",
        "It trains a model of Keras that was saved. Keras 2 takes the length of a symbolic tensor, and fails.",
    ),
    Cause("_v2_funcgraph", "not found", "The test class of Keras 2 does not run tests in this way."),
    Cause(
        "DropStaleGradient",
        "ended|not found",
        "It hangs, also without staging-tf1: no device is set in a cluster. See [out_of_reach.md](out_of_reach.md).",
    ),
)
