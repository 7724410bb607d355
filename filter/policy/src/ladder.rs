//! The staleness ladder: what may still be believed of a snapshot of a given age.
//!
//! | rung | age of the data | believed |
//! |---|---|---|
//! | 0 `full` | up to 2 periods | everything |
//! | 1 `ageing` | up to 5 s | everything; water-filling flattens as unseen arrivals grow with age |
//! | 2 `counts_ignored` | up to 30 s | weights and gates; own counts only |
//! | 3 `type_capacity` | up to a day | capacity of the GPU type; own counts and own success rate |
//! | 4 `equal_weights` | longer | that the endpoints exist |
//! | 5 `no_snapshot` | never heard | nothing; Envoy's own load balancer decides |
//!
//! It fails open: with less knowledge the spread gets flatter, it never stops. Hard-down marks hold on
//! every rung. A single silent endpoint among fresh ones is not judged here but in `pick`: it counts as
//! at least as loaded as the mean, since silence is not idleness.
//!
//! What a GPU type can do is believed for a day, since the hardware behind an address does not change
//! within minutes, and equal weights are not safe: with four GPUs of 0.45 among four of 1.0 and 1,024
//! proxies, too many for own counts to say much, they are unstable at load 0.7 (P99 over 7 times the ideal
//! and growing), where capacities alone stay at 1.3 times (`tests/sim`).

use crate::units::Span;

/// Counts are believed for this long, or two periods where that is longer.
pub const COUNTS_AGE_MAX: Span = Span::secs(5);
/// Weights, gates and fleet success rates are believed for this long.
pub const WEIGHTS_AGE_MAX: Span = Span::secs(30);
/// GPU types are believed for this long: a day.
pub const TYPES_AGE_MAX: Span = Span::secs(86_400);

/// A rung; lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Rung {
    Full = 0,
    Ageing = 1,
    CountsIgnored = 2,
    TypeCapacity = 3,
    EqualWeights = 4,
    NoSnapshot = 5,
}

impl Rung {
    pub const ALL: [Self; 6] = [
        Self::Full,
        Self::Ageing,
        Self::CountsIgnored,
        Self::TypeCapacity,
        Self::EqualWeights,
        Self::NoSnapshot,
    ];

    /// The rung for data of `age` when updates come every `period`; `None`: there is no data.
    #[must_use]
    pub fn at(age: Option<Span>, period: Span) -> Self {
        let Some(age) = age else { return Self::NoSnapshot };
        let fresh = period.times(2);
        if age > TYPES_AGE_MAX {
            Self::EqualWeights
        } else if age > WEIGHTS_AGE_MAX {
            Self::TypeCapacity
        } else if age > counts_age_max(period) {
            Self::CountsIgnored
        } else if age > fresh {
            Self::Ageing
        } else {
            Self::Full
        }
    }

    /// The number on the gauge.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Ageing => "ageing",
            Self::CountsIgnored => "counts_ignored",
            Self::TypeCapacity => "type_capacity",
            Self::EqualWeights => "equal_weights",
            Self::NoSnapshot => "no_snapshot",
        }
    }
}

/// How long counts are believed when updates come every `period`.
#[must_use]
pub fn counts_age_max(period: Span) -> Span {
    COUNTS_AGE_MAX.max(period.times(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_at_their_bounds() {
        for (age_ms, expected) in [
            (0, Rung::Full),
            (1_000, Rung::Full),
            (1_001, Rung::Ageing),
            (5_000, Rung::Ageing),
            (5_001, Rung::CountsIgnored),
            (30_000, Rung::CountsIgnored),
            (30_001, Rung::TypeCapacity),
            (86_400_000, Rung::TypeCapacity),
            (86_400_001, Rung::EqualWeights),
            (u64::MAX, Rung::EqualWeights),
        ] {
            assert_eq!(Rung::at(Some(Span::ms(age_ms)), Span::ms(500)), expected, "{age_ms}");
        }
    }

    #[test]
    fn never_heard_is_the_last_rung() {
        assert_eq!(Rung::at(None, Span::ms(500)), Rung::NoSnapshot);
    }

    #[test]
    fn a_long_period_stretches_the_belief_in_counts() {
        // 2 × 5 s = 10 s is fresh by definition.
        assert_eq!(Rung::at(Some(Span::secs(10)), Span::secs(5)), Rung::Full);
        assert_eq!(Rung::at(Some(Span::ms(10_001)), Span::secs(5)), Rung::CountsIgnored);
        assert_eq!(Rung::at(Some(Span::secs(1)), Span::ms(u64::MAX)), Rung::Full);
    }

    #[test]
    fn numbers_grow_with_ignorance() {
        let numbers = Rung::ALL.map(Rung::number);
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    }
}
