//! Small arithmetic shared by the steps: exponential averages, medians, safe rounding.
use alloc::vec::Vec;

use tidegate_policy::units::Span;

/// Longest time that one step accounts for: after a pause nothing jumps further than this allows.
pub(crate) const STEP_MAX: Span = Span::secs(5);

/// Moves `old` towards `target` as an exponential average with time constant `tau` does in `dt`.
pub(crate) fn ewma(old: f64, target: f64, dt: Span, tau: Span) -> f64 {
    let tau = tau.as_secs_f64();
    if tau <= 0.0 {
        return target;
    }
    let keep = libm::exp(-dt.as_secs_f64() / tau);
    target + (old - target) * keep
}

/// The middle value, the mean of the two middle ones for an even count; numbers that are not finite are left out.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get((sorted.len() / 2).checked_sub(1)?)?;
    Some(f64::midpoint(lower, upper))
}

/// A number between the bounds; what is not a number becomes the lower one.
pub(crate) fn bounded(value: f64, low: f64, high: f64) -> f64 {
    if value.is_nan() { low } else { value.max(low).min(high) }
}

/// Part of a whole, 0..=1; unknown when the whole is zero.
pub(crate) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| bounded(part as f64 / whole as f64, 0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_even_and_odd_and_none() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5)); // (2+3)/2
        assert_eq!(median([f64::NAN, 7.0].into_iter()), Some(7.0));
        assert_eq!(median([].into_iter()), None);
    }

    #[test]
    fn ewma_after_one_tau_keeps_37_percent() {
        let moved = ewma(1.0, 0.0, Span::secs(10), Span::secs(10));
        assert!((moved - 0.367_879).abs() < 1e-6); // e^-1
        assert_eq!(ewma(1.0, 0.0, Span::ZERO, Span::secs(10)), 1.0);
        assert_eq!(ewma(1.0, 0.5, Span::secs(1), Span::ZERO), 0.5);
    }

    #[test]
    fn bounds_take_everything() {
        assert_eq!(bounded(f64::NAN, 0.1, 2.0), 0.1);
        assert_eq!(bounded(f64::INFINITY, 0.1, 2.0), 2.0);
        assert_eq!(bounded(f64::NEG_INFINITY, 0.1, 2.0), 0.1);
        assert_eq!(ratio(1, 0), None);
        assert_eq!(ratio(3, 2), Some(1.0));
    }
}
