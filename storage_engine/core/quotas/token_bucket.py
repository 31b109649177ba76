"""A rate with bursts: credit that grows with time up to a bound.

Kafka takes the average over a window of 11 s instead, and forgets what is older: a client begins
with ten seconds' worth at once, and who sends more than a window's worth in one request never pays
for all of it. Credit holds the rate over any time, but for one burst. Source: KIP-599.
"""


class TokenBucket:
    """Begins full."""

    __slots__ = ("_at_ms", "_burst_s", "_tokens", "rate")

    def __init__(self, rate: float, burst_s: float, now_ms: int) -> None:
        """`rate`: tokens a second, above 0; `burst_s`: seconds' worth of it that are saved."""
        self.rate = rate
        self._burst_s = burst_s
        self._tokens = rate * burst_s
        self._at_ms = now_ms

    def change_rate(self, rate: float, now_ms: int) -> None:
        """What was saved or is owed stays the same number of seconds."""
        self._fill(now_ms)
        self._tokens *= rate / self.rate
        self.rate = rate

    def take(self, tokens: float, now_ms: int) -> None:
        """Takes them even where there are not as many: the next ones wait for it."""
        self._fill(now_ms)
        self._tokens -= tokens

    def wait_ms(self, now_ms: int) -> int:
        """How long until there is credit; 0 while there is."""
        self._fill(now_ms)
        return 0 if self._tokens >= 0 else int(-self._tokens / self.rate * 1000) + 1

    def is_full(self, now_ms: int) -> bool:
        """Whether it is as a new one."""
        self._fill(now_ms)
        return self._tokens >= self.rate * self._burst_s

    def _fill(self, now_ms: int) -> None:
        if now_ms > self._at_ms:
            gained = self.rate * (now_ms - self._at_ms) / 1000
            self._tokens = min(self.rate * self._burst_s, self._tokens + gained)
            self._at_ms = now_ms
