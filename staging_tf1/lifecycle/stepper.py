"""The fast path: a step as a callable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staging_tf1.lifecycle.clock import StepClock
from staging_tf1.lifecycle.steps import Steps


def make_stepper(
    session: Any, steps: Steps, clock: StepClock, fetches: Any, feed_list: Sequence[Any] | None
) -> Callable[..., Any]:
    """A callable of `feed_list`'s values that runs `fetches`, with all that `steps` does around a step."""
    feeds = list(feed_list or ())
    needed = steps.needed(fetches, feeds)
    plain = session.make_callable(fetches, feed_list or None)
    if not feeds:
        # With feeds TensorFlow goes by the session's run, which is timed already.
        plain = clock.timed(fetches, plain)

    def step(*values: Any) -> Any:
        puts, more = steps.before(needed)
        if puts or more:
            result = session.run([fetches, puts], {**dict(zip(feeds, values, strict=True)), **more})[0]
        else:
            result = plain(*values)
        steps.after()
        return result

    return step
