"""When a request that was refused is sent again."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable

from .errors import ResourceExhaustedError, TandemError, UnavailableError


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """A request is sent again if all of this holds:

    * it ended with RESOURCE_EXHAUSTED or UNAVAILABLE, and the server said when to come again (`grpc-retry-pushback-ms`);
    * no token had come. A stream that broke later raises its error, which has what had arrived;
    * fewer than `max_attempts` attempts were made;
    * the next one would begin within `max_seconds` after the first, and within the timeout of the call.

    The client waits for the time that the server named, and for a random part of it longer, so that clients that were refused together do
    not come back together: the wait is evenly distributed over [p, p * (1 + jitter)]. It is never shorter than the server asked for.
    """

    max_attempts: int = 5
    """The first one included; 1 never retries."""
    max_seconds: float = 60.0
    jitter: float = 0.25
    uniform: Callable[[], float] = random.random
    """Draws from [0, 1)."""

    def delay(self, error: TandemError, attempts: int, seconds: float) -> float | None:
        """Returns the seconds to wait after the failure of attempt number `attempts`, `seconds` after the start of the first one; None
        if the error is final."""
        if not isinstance(error, (ResourceExhaustedError, UnavailableError)) or error.retry_after is None:
            return None
        delay = error.retry_after * (1 + self.jitter * self.uniform())
        return delay if attempts < self.max_attempts and seconds + delay <= self.max_seconds else None


NEVER = RetryPolicy(max_attempts=1)


class Attempts:
    """The attempts of one call, which share its timeout."""

    def __init__(self, policy: RetryPolicy, timeout: float | None) -> None:
        self._policy = policy
        self._timeout = timeout
        self._began = time.monotonic()
        self.count = 0

    def begin(self) -> float | None:
        """Begins an attempt. Returns its timeout."""
        self.count += 1
        return self._left()

    def delay_after(self, error: TandemError) -> float | None:
        delay = self._policy.delay(error, self.count, time.monotonic() - self._began)
        left = self._left()
        return delay if delay is None or left is None or delay < left else None

    def _left(self) -> float | None:
        if self._timeout is None:
            return None
        return max(0.0, self._timeout - (time.monotonic() - self._began))
