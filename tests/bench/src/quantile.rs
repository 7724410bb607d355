//! Quantiles of a handful of samples, exactly: a run has thousands of requests, not millions.

pub use tidegate_sim::quantile::quantile;

/// The middle one; of an even number, the mean of the two in the middle.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[half]),
        _ => Some((sorted[half - 1] + sorted[half]) / 2.0),
    }
}

/// The quantiles that the benches report.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spread {
    pub p50: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
}

impl Spread {
    pub fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self {
            p50: quantile(&samples, 0.50),
            p95: quantile(&samples, 0.95),
            p99: quantile(&samples, 0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_picks_the_sample_at_its_rank() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        for (q, expected) in [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0), (1.0, 100.0)] {
            assert_eq!(quantile(&sorted, q), Some(expected));
        }
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn median_of_even_odd_and_no_samples() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
