//! Quantiles of the samples of one run, exactly.

/// The sample below which a share `q` of `sorted` lies; nothing of nothing.
#[must_use]
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let index = (q * sorted.len() as f64) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_is_the_sample_at_its_rank() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        for (q, expected) in [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0), (1.0, 100.0)] {
            assert_eq!(quantile(&sorted, q), Some(expected));
        }
        assert_eq!(quantile(&[], 0.5), None);
    }
}
