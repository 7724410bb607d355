//! Slow start: the share of an endpoint that has just become healthy grows with time.
//!
//! A fresh model server compiles kernels and has a cold prefix cache, so it starts at a tenth of its
//! share and grows linearly. Its weight is not believed for the first ten seconds either: it was
//! measured without traffic, so the median weight of its GPU type stands for it.

use crate::units::{Span, Time};

/// Share at the start.
pub const RAMP_MIN: f64 = 0.1;
/// For this long the median weight of the GPU type stands for the endpoint's own.
pub const WEIGHT_UNKNOWN: Span = Span::secs(10);

/// How long an endpoint is healthy at `now`, if it said `healthy_for` at `listed`.
#[must_use]
pub const fn healthy_for(healthy_for: Option<Span>, listed: Time, now: Time) -> Option<Span> {
    match healthy_for {
        Some(span) => Some(span.plus(now.since(listed))),
        None => None,
    }
}

/// Factor on the weight after `healthy_for` with slow start over `over`; unknown is long ago.
#[must_use]
pub fn ramp(healthy_for: Option<Span>, over: Span) -> f64 {
    match healthy_for {
        Some(span) if span < over => (span.as_secs_f64() / over.as_secs_f64()).clamp(RAMP_MIN, 1.0),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_linearly_from_a_tenth() {
        for (healthy_ms, expected) in [
            (0, 0.1),
            // 5.999 / 60 is under a tenth
            (5_999, 0.1),
            (6_000, 0.1),
            (30_000, 0.5),
            (59_999, 0.999_983),
            (60_000, 1.0),
            (u64::MAX, 1.0),
        ] {
            let found = ramp(Some(Span::ms(healthy_ms)), Span::secs(60));
            assert!((found - expected).abs() < 1e-6, "{healthy_ms}: {found}");
        }
    }

    #[test]
    fn unknown_or_switched_off_is_full() {
        assert!(ramp(None, Span::secs(60)) >= 1.0);
        assert!(ramp(Some(Span::ZERO), Span::ZERO) >= 1.0);
    }

    #[test]
    fn health_goes_on_between_updates() {
        let at = |now| healthy_for(Some(Span::secs(3)), Time::ms(1_000), Time::ms(now));
        assert_eq!(at(3_000), Some(Span::secs(5)));
        assert_eq!(at(0), Some(Span::secs(3)));
        assert_eq!(healthy_for(None, Time::ms(0), Time::ms(9)), None);
    }
}
