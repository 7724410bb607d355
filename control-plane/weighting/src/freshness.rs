//! How old a value may be before it stops counting.
//!
//! Ages are the receiver's: time since the report arrived plus the age the value had when it was
//! sent. A value counts for three periods of its tier; utilisation, memory, clocks, power and engine
//! metrics are sampled every interval, temperature, ECC and PCIe at least every 10 s.
//!
//! ```text
//! silence of a node   fresh ──3 periods, ≥ 1.5 s──▶ stale ──≥ 5 s──▶ expired ──≥ 15 s──▶ (fully)
//! score               computed                      held             neutral
//! gate                computed                      may only fall    × 1 → 0.5
//! ```
//! Thresholds under three periods make whole pools look dead at the first slow scrape. Silence never
//! takes the gate below one half, so a fleet whose reporters all stop is still a fleet.
use tidegate_policy::units::{Span, Time};

use crate::input::Aged;

/// Periods for which a value counts.
pub const PERIODS: u64 = 3;
/// A jittered 100 ms reporter must not flap on one late packet.
pub const FRESH_MIN: Span = Span::ms(1_500);
/// From here a silent node is treated as unknown.
pub const STALE_MIN: Span = Span::secs(5);
/// From here silence costs the full half of the gate.
pub const SILENT_MIN: Span = Span::secs(15);
/// Sampling period of the slower groups when the reporter's interval is shorter.
pub const MEDIUM_PERIOD: Span = Span::secs(10);
/// Gate that a fully silent node keeps.
pub const SILENCE_GATE_MIN: f64 = 0.5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Freshness {
    Fresh,
    /// Late, but hold what was known.
    Stale,
    /// Too old to say anything.
    Expired,
}

/// How often a group of values is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Every interval.
    Fast,
    /// At least every 10 s.
    Medium,
}

impl Tier {
    fn period(self, interval: Span) -> Span {
        match self {
            Self::Fast => interval,
            Self::Medium => interval.max(MEDIUM_PERIOD),
        }
    }
}

/// Longest age that counts as fresh for this sampling period.
#[must_use]
pub fn fresh_limit(period: Span) -> Span {
    period.times(PERIODS).max(FRESH_MIN)
}

/// Longest silence that is bridged with what was known.
#[must_use]
pub fn stale_limit(period: Span) -> Span {
    fresh_limit(period).times(2).max(STALE_MIN)
}

#[must_use]
pub fn freshness(age: Span, period: Span) -> Freshness {
    if age <= fresh_limit(period) {
        Freshness::Fresh
    } else if age <= stale_limit(period) {
        Freshness::Stale
    } else {
        Freshness::Expired
    }
}

/// Age at the receiver.
#[must_use]
pub fn age(now: Time, received: Time, sent_age: Span) -> Span {
    now.since(received).plus(sent_age)
}

/// The values of a group while they count.
#[must_use]
pub fn read<T: Copy>(
    now: Time,
    received: Time,
    interval: Span,
    group: Option<Aged<T>>,
    tier: Tier,
) -> Option<T> {
    let group = group?;
    let age = age(now, received, group.age);
    (age <= fresh_limit(tier.period(interval))).then_some(group.values)
}

/// Factor of the gate for a node that has been silent this long: 1, then a line down to one half.
#[must_use]
pub fn silence_gate(silent: Span, interval: Span) -> f64 {
    let from = stale_limit(interval);
    let to = from.times(3).max(SILENT_MIN);
    if silent <= from {
        return 1.0;
    }
    if silent >= to {
        return SILENCE_GATE_MIN;
    }
    let over = (silent.as_ms().saturating_sub(from.as_ms())) as f64;
    let width = (to.as_ms().saturating_sub(from.as_ms())).max(1) as f64;
    1.0 - (1.0 - SILENCE_GATE_MIN) * over / width
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Span = Span::ms(500);

    #[test]
    fn freshness_at_the_bounds() {
        // 500 ms: fresh to max(1500, 1500), stale to max(3000, 5000).
        let check =
            |age_ms, expected| assert_eq!(freshness(Span::ms(age_ms), HALF), expected, "{age_ms}");
        check(0, Freshness::Fresh);
        check(1_500, Freshness::Fresh);
        check(1_501, Freshness::Stale);
        check(5_000, Freshness::Stale);
        check(5_001, Freshness::Expired);
        check(u64::MAX, Freshness::Expired);
    }

    #[test]
    fn slow_reporters_get_three_of_their_own_periods() {
        // 10 s: fresh to 30 s, stale to 60 s.
        let period = Span::secs(10);
        assert_eq!(freshness(Span::ms(30_000), period), Freshness::Fresh);
        assert_eq!(freshness(Span::ms(30_001), period), Freshness::Stale);
        assert_eq!(freshness(Span::ms(60_000), period), Freshness::Stale);
        assert_eq!(freshness(Span::ms(60_001), period), Freshness::Expired);
    }

    #[test]
    fn fast_reporters_are_not_hurried() {
        assert_eq!(fresh_limit(Span::ms(100)), Span::ms(1_500));
        assert_eq!(fresh_limit(Span::ZERO), Span::ms(1_500));
    }

    #[test]
    fn a_value_counts_by_its_tier() {
        let group = |age_ms| Some(Aged { age: Span::ms(age_ms), values: 7_u8 });
        let read = |age_ms, tier| read(Time::ms(1_000), Time::ms(900), HALF, group(age_ms), tier);
        // 100 ms of transport are added to the age at sending.
        assert_eq!(read(1_400, Tier::Fast), Some(7));
        assert_eq!(read(1_401, Tier::Fast), None);
        assert_eq!(read(29_900, Tier::Medium), Some(7));
        assert_eq!(read(29_901, Tier::Medium), None);
    }

    #[test]
    fn a_clock_that_steps_back_makes_nothing_old() {
        assert_eq!(age(Time::ms(5), Time::ms(9_999), Span::ms(3)), Span::ms(3));
        assert_eq!(age(Time::ms(u64::MAX), Time::ms(0), Span::ms(9)), Span::ms(u64::MAX));
    }

    #[test]
    fn silence_costs_at_most_half() {
        let check = |ms, expected: f64| {
            let gate = silence_gate(Span::ms(ms), HALF);
            assert!((gate - expected).abs() < 1e-9, "{ms}: {gate}");
        };
        check(0, 1.0);
        check(5_000, 1.0);
        check(7_500, 0.875); // 1 − 0.5·2500/10000
        check(10_000, 0.75); // 1 − 0.5·5000/10000
        check(15_000, 0.5);
        check(u64::MAX, 0.5);
    }
}
