"""What `staging-tf1 run` was told, and how a child process learns it: one environment variable."""

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

    packages: tuple[str, ...] = ()  # installed packages that see TF1 too, by their top-level names
    claim_version: bool = False  # tf.__version__ says 1.15.5 to the program
    old_names: bool = True  # numpy's and Python's removed names, np.object and the like, are offered

    def to_environment(self, environment: MutableMapping[str, str]) -> None:
        """Writes these settings where every Python child of the process finds them."""
        environment[ENVIRONMENT_NAME] = json.dumps(asdict(self))


def from_environment() -> Settings | None:
    """The settings that the parent process left, or None where it left none."""
    text = os.environ.get(ENVIRONMENT_NAME)
    if not text:
        return None
    stored = json.loads(text)
    return Settings(tuple(stored["packages"]), bool(stored["claim_version"]), bool(stored["old_names"]))
