"""The settings of `staging-tf1 run`. Child processes read them from one environment variable."""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass

ENVIRONMENT_NAME = "STAGING_TF1_LEGACY"
CLAIMED_VERSION = "1.15.5"


@dataclass(frozen=True)
class Settings:
    """How the program sees TensorFlow."""

    packages: tuple[str, ...] = ()  # top-level names of installed packages that also see TF1
    claim_version: bool = False  # tf.__version__ is 1.15.5 for the program
    old_names: bool = True  # names that numpy and Python removed, such as np.object, are available
    only: tuple[str, ...] = ()  # the names of `tf` that programs see as in TF1; all, if there are none
    stall_secs: float | None = None  # after which a run that waits is explained; None is the environment's, or 60
    auto_stage: str = ""  # "stage" stages the input of the program's graphs; "report" only says what that would do

    def to_environment(self, environment: MutableMapping[str, str]) -> None:
        """Write these settings to `environment`, where every Python child process finds them."""
        environment[ENVIRONMENT_NAME] = json.dumps(asdict(self))


def from_environment() -> Settings | None:
    """Return the settings that the parent process wrote, or None if there are none."""
    text = os.environ.get(ENVIRONMENT_NAME)
    if not text:
        return None
    stored = json.loads(text)
    return Settings(
        tuple(stored["packages"]),
        claim_version=bool(stored["claim_version"]),
        auto_stage=str(stored.get("auto_stage", "")),
        stall_secs=stored.get("stall_secs"),
        old_names=bool(stored["old_names"]),
    )
