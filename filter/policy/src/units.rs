//! The quantities that cross module borders: time, weight, ratio.
//!
//! Every constructor is total: a value outside its range is moved to the nearest bound, since these
//! numbers come from the wire and no message may stop a request. Arithmetic saturates, because the
//! clock may step back and counters may be huge.

/// A point on this worker's clock, in milliseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Time {
    #[must_use]
    pub const fn ms(ms: u64) -> Self {
        Self(ms)
    }

    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`; zero when the clock stepped back.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    #[must_use]
    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    #[must_use]
    pub const fn minus(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Span {
    pub const ZERO: Self = Self(0);

    #[must_use]
    pub const fn ms(ms: u64) -> Self {
        Self(ms)
    }

    #[must_use]
    pub const fn secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    #[must_use]
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1_000.0
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

/// Saturated throughput relative to the other endpoints, 1..=10000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u16);

impl Weight {
    pub const MIN: Self = Self(1);
    pub const MAX: Self = Self(10_000);

    /// `None` outside 1..=10000.
    #[must_use]
    pub const fn new(value: u32) -> Option<Self> {
        if value >= 1 && value <= 10_000 { Some(Self(value as u16)) } else { None }
    }

    #[must_use]
    pub const fn clamped(value: u32) -> Self {
        if value < 1 {
            Self::MIN
        } else if value > 10_000 {
            Self::MAX
        } else {
            Self(value as u16)
        }
    }

    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// Thousandths, 0..=1000: a health gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PerMille(u16);

impl PerMille {
    pub const ZERO: Self = Self(0);
    pub const FULL: Self = Self(1_000);

    #[must_use]
    pub const fn clamped(value: u32) -> Self {
        if value > 1_000 { Self::FULL } else { Self(value as u16) }
    }

    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    #[must_use]
    pub const fn ratio(self) -> f64 {
        self.0 as f64 / 1_000.0
    }
}

/// Ten-thousandths, 0..=10000: a rate or a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BasisPoints(u16);

impl BasisPoints {
    pub const ZERO: Self = Self(0);
    pub const FULL: Self = Self(10_000);

    #[must_use]
    pub const fn clamped(value: u32) -> Self {
        if value > 10_000 { Self::FULL } else { Self(value as u16) }
    }

    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    #[must_use]
    pub const fn ratio(self) -> f64 {
        self.0 as f64 / 10_000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_steps_back_gives_zero() {
        assert_eq!(Time::ms(5).since(Time::ms(9)), Span::ZERO);
        assert_eq!(Time::ms(9).since(Time::ms(5)), Span::ms(4));
        assert_eq!(Time::ms(3).minus(Span::ms(4)), Time::ms(0));
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::ms(u64::MAX).plus(Span::ms(1)), Time::ms(u64::MAX));
        assert_eq!(Span::secs(u64::MAX), Span::ms(u64::MAX));
        assert_eq!(Span::ms(u64::MAX).plus(Span::ms(1)).times(2), Span::ms(u64::MAX));
    }

    #[test]
    fn values_outside_move_to_the_bound() {
        assert_eq!(
            [0, 1, 10_000, 10_001].map(|v| Weight::clamped(v).get()),
            [1, 1, 10_000, 10_000]
        );
        assert_eq!(
            [0, 1, 10_000, 10_001].map(|v| Weight::new(v).is_some()),
            [false, true, true, false]
        );
        assert_eq!([0, 1_000, 1_001].map(|v| PerMille::clamped(v).get()), [0, 1_000, 1_000]);
        assert_eq!(
            [0, 10_000, u32::MAX].map(|v| BasisPoints::clamped(v).get()),
            [0, 10_000, 10_000]
        );
    }

    #[test]
    fn ratios_are_decimal() {
        assert!((PerMille::clamped(250).ratio() - 0.25).abs() < 1e-12);
        assert!((BasisPoints::clamped(9_950).ratio() - 0.995).abs() < 1e-12);
    }
}
