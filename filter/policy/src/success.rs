//! Success rate of an endpoint as this worker sees it, and the factor it puts on the weight.
//!
//! An endpoint that fails fast looks idle to every load-aware rule and draws traffic like a sink. The
//! weight is therefore multiplied by the fourth power of the success rate relative to the median of the
//! service, which leaves such an endpoint under 1 % of the picks before any breaker opens. The average
//! moves up and down at the same pace: a faster fall looks safer, but with harmless errors everywhere
//! it starves good endpoints. Relative to the median, a fault that all share starves nobody.
//!
//! Silence heals, or an endpoint that was starved would never be tried again; but what it heals is a guess
//! until a success confirms it, and a failure takes all of it back. Kept at its tenth, the guess would hold
//! a sink near half its rate where requests are long and few: 7 % of the picks at 5.6 requests a second,
//! against 1.6 % (`tests/sim`, one of eight endpoints failing).

use crate::units::{Span, Time};

/// Share of the distance that one outcome moves the average.
const STEP: f64 = 0.1;
/// Below this the average does not fall, so that recovery takes bounded time.
const FLOOR: f64 = 0.1;
/// Recovery a second without a verdict: from the floor to full in 45 s.
const RECOVERY_A_SECOND: f64 = 0.02;
/// Least factor; 0.01 would still leak several percent to a sink with one proxy.
pub const FACTOR_MIN: f64 = 0.001;

/// Symmetric moving average of successes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Success {
    /// After the last verdict.
    value: f64,
    at: Time,
}

/// What one try says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Success,
    Failure,
}

impl Success {
    /// Full marks until something is known.
    #[must_use]
    pub const fn new(now: Time) -> Self {
        Self { value: 1.0, at: now }
    }

    /// Moves the average.
    pub fn record(&mut self, now: Time, verdict: Verdict) {
        let (before, target) = match verdict {
            Verdict::Success => (self.value(now), 1.0),
            Verdict::Failure => (self.value, 0.0),
        };
        self.value = (before + STEP * (target - before)).clamp(FLOOR, 1.0);
        self.at = self.at.max(now);
    }

    /// The average at `now`, with what silence has healed; within 0.1..=1.
    #[must_use]
    pub fn value(&self, now: Time) -> f64 {
        let quiet: Span = now.since(self.at);
        (self.value + RECOVERY_A_SECOND * quiet.as_secs_f64()).clamp(FLOOR, 1.0)
    }
}

/// Factor on the weight for success rate `rate` where the service's median is `median`.
#[must_use]
pub fn factor(rate: f64, median: f64) -> f64 {
    let relative = if median > 0.0 { (rate / median).clamp(0.0, 1.0) } else { 1.0 };
    let squared = relative * relative;
    (squared * squared).max(FACTOR_MIN)
}

/// Median of `rates`, which are reordered; 1 when there are none.
#[must_use]
pub fn median(rates: &mut [f64]) -> f64 {
    if rates.is_empty() {
        return 1.0;
    }
    let middle = rates.len() / 2;
    let (below, upper, _) = rates.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    if below.len() == middle && rates.len() % 2 == 1 {
        return upper;
    }
    // An even number: the mean of the two in the middle.
    let lower = rates.iter().take(middle).copied().fold(f64::NEG_INFINITY, f64::max);
    (lower + upper) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(ms: u64) -> Time {
        Time::ms(ms)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn one_failure_and_one_success() {
        let mut s = Success::new(t(0));
        s.record(t(0), Verdict::Failure);
        // 1 + 0.1 × (0 − 1) = 0.9
        assert!(close(s.value(t(0)), 0.9));
        s.record(t(0), Verdict::Success);
        // 0.9 + 0.1 × (1 − 0.9) = 0.91
        assert!(close(s.value(t(0)), 0.91));
    }

    #[test]
    fn failures_stop_at_the_floor_and_silence_heals() {
        let mut s = Success::new(t(0));
        for _ in 0..100 {
            s.record(t(0), Verdict::Failure);
        }
        assert!(close(s.value(t(0)), 0.1));
        // 0.1 + 0.02 × 10 s = 0.3
        assert!(close(s.value(t(10_000)), 0.3));
        // 0.1 + 0.02 × 45 s = 1.0, and never more
        assert!(close(s.value(t(45_000)), 1.0));
        assert!(close(s.value(t(u64::MAX)), 1.0));
    }

    #[test]
    fn what_silence_healed_counts_once_a_success_confirms_it() {
        let mut s = Success::new(t(0));
        for _ in 0..100 {
            s.record(t(0), Verdict::Failure);
        }
        // Healed to 0.1 + 0.02 × 20 = 0.5, and all of it taken back.
        s.record(t(20_000), Verdict::Failure);
        assert!(close(s.value(t(20_000)), 0.1));
        // Healed to 0.5 again, and confirmed: 0.5 + 0.1 × 0.5
        s.record(t(40_000), Verdict::Success);
        assert!(close(s.value(t(40_000)), 0.55));
        s.record(t(40_000), Verdict::Failure);
        assert!(close(s.value(t(40_000)), 0.495));
    }

    #[test]
    fn a_clock_that_steps_back_heals_nothing_and_breaks_nothing() {
        let mut s = Success::new(t(10_000));
        s.record(t(10_000), Verdict::Failure);
        s.record(t(0), Verdict::Failure);
        // 0.9 × 0.9
        assert!(close(s.value(t(0)), 0.81));
        assert!(close(s.value(t(10_000)), 0.81));
    }

    #[test]
    fn factors() {
        for (rate, median, expected) in [
            (1.0, 1.0, 1.0),
            // 0.5^4
            (0.5, 1.0, 0.0625),
            // 0.1^4 = 0.0001 is under the floor
            (0.1, 1.0, 0.001),
            (0.0, 1.0, 0.001),
            // all at 0.5: nobody is worse than the others
            (0.5, 0.5, 1.0),
            // better than the median is not better than full
            (1.0, 0.5, 1.0),
            // (0.45 / 0.9)^4
            (0.45, 0.9, 0.0625),
            (0.5, 0.0, 1.0),
        ] {
            assert!(close(factor(rate, median), expected), "{rate} {median}");
        }
    }

    #[test]
    fn medians() {
        for (rates, expected) in [
            (&mut [][..], 1.0),
            (&mut [0.4][..], 0.4),
            (&mut [0.4, 0.8][..], 0.6),
            (&mut [0.9, 0.1, 0.5][..], 0.5),
            (&mut [1.0, 0.1, 0.9, 0.5][..], 0.7),
        ] {
            assert!(close(median(rates), expected), "{rates:?}");
        }
    }
}
