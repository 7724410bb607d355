//! How often something may happen: a token bucket.
//!
//! `burst` may happen at once; after that one more every `1 / per_second`. Used for reports of a
//! reporter, feedback of a proxy, new streams and pushes between periods. Time is an argument, and a
//! clock that steps back refills nothing.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Clone, Debug)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub fn new(now: Instant, per_second: u32, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        Self { per_second: f64::from(per_second.max(1)), burst, tokens: burst, filled: now }
    }

    /// Whether it may happen now; if so it counts.
    pub fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let may = self.tokens >= 1.0;
        if may {
            self.tokens -= 1.0;
        }
        may
    }

    /// How long until the next `take` succeeds.
    #[must_use]
    pub fn wait(&mut self, now: Instant) -> Duration {
        self.fill(now);
        let missing = (1.0 - self.tokens).max(0.0);
        // A microsecond more, so that rounding never makes a waiter come too early.
        let micros = if missing > 0.0 { missing / self.per_second + 1e-6 } else { 0.0 };
        Duration::from_secs_f64(micros)
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
        self.filled = self.filled.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn burst_passes_and_one_more_waits() {
        let t = Instant::now();
        let mut bucket = Bucket::new(t, 2, 3);
        assert_eq!([(); 4].map(|()| bucket.take(t)), [true, true, true, false]);
        // 2 a second: the next token is there after 500 ms.
        assert!(bucket.wait(t) >= Duration::from_millis(500));
        assert!(!bucket.take(after(t, 499)));
        assert!(bucket.take(after(t, 501)));
    }

    #[test]
    fn quiet_time_refills_to_the_burst_only() {
        let t = Instant::now();
        let mut bucket = Bucket::new(t, 10, 2);
        let later = after(t, 3_600_000);
        assert_eq!([(); 3].map(|()| bucket.take(later)), [true, true, false]);
    }

    #[test]
    fn clock_that_steps_back_gives_nothing() {
        let t = after(Instant::now(), 10_000);
        let mut bucket = Bucket::new(t, 1, 1);
        assert!(bucket.take(t));
        let back = t.checked_sub(Duration::from_secs(5)).unwrap();
        assert!(!bucket.take(back));
        assert!(!bucket.take(after(t, 900)));
        assert!(bucket.take(after(t, 1_001)));
    }

    #[test]
    fn sustained_rate_is_the_rate() {
        let t = Instant::now();
        let mut bucket = Bucket::new(t, 12, 10);
        let taken = (0..10_000u64).filter(|ms| bucket.take(after(t, *ms))).count();
        // 10 s: the burst of 10 and 12 a second after it.
        assert!((129..=130).contains(&taken), "{taken}");
    }
}
