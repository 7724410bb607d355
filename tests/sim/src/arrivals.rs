//! The requests of a run: Poisson arrivals, lognormal work, a random proxy for each.
//!
//! Gaps, work and proxies are drawn from generators of their own, so two runs that differ in load or in the
//! number of proxies see the same work, and every policy sees the same requests. What is compared is then
//! the policy and not the luck of the draw.

use std::f64::consts::TAU;

use tidegate_policy::chance::Chance;

use crate::{Nanos, SECOND};

/// One request to come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    pub at: Nanos,
    /// Seconds at speed 1.
    pub work_s: f64,
    pub proxy: usize,
}

/// What arrivals are drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub seed: u64,
    pub requests: usize,
    pub rate_per_s: f64,
    pub work_mean_s: f64,
    /// Of the logarithm of the work; with 1 the longest hundredth is over 6 times the mean.
    pub work_sigma: f64,
    pub proxies: usize,
}

impl Shape {
    #[must_use]
    pub fn draw(&self) -> Vec<Arrival> {
        let mut gaps = generator(self.seed, 0);
        let mut works = generator(self.seed, 1_000);
        let mut proxies = generator(self.seed, 2_000);
        let mu = libm::log(self.work_mean_s) - self.work_sigma * self.work_sigma / 2.0;
        let mut now_s = 0.0;
        (0..self.requests)
            .map(|_| {
                now_s += exponential(&mut gaps) / self.rate_per_s;
                Arrival {
                    at: (now_s * SECOND) as Nanos,
                    work_s: libm::exp(mu + self.work_sigma * normal(&mut works)),
                    proxy: (proxies.unit() * self.proxies as f64) as usize,
                }
            })
            .collect()
    }
}

/// One long sequence for each seed, from draw number `stream` on.
///
/// The streams of this file stand a thousand draws apart, so a gap and the work of a request a thousand later
/// share a draw. Nothing here can feel that, and the requests are those of an independent simulator.
/// What must not move in step with others, as proxies must not, takes a seed from [`seeds`] instead.
#[must_use]
pub fn generator(seed: u64, stream: u64) -> Chance {
    let start = seed.wrapping_add(stream).wrapping_add(4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Chance::seeded(start.wrapping_add(0x0123_4567))
}

/// Unrelated generators, one after the other.
pub fn seeds(seed: u64) -> impl Iterator<Item = Chance> {
    let mut source = generator(seed, 1 << 40);
    std::iter::repeat_with(move || Chance::seeded(source.bits()))
}

/// Of mean 1.
pub fn exponential(chance: &mut Chance) -> f64 {
    -libm::log(1.0 - chance.unit())
}

/// Of mean 0 and deviation 1.
pub fn normal(chance: &mut Chance) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - chance.unit()));
    radius * libm::cos(TAU * chance.unit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        seed: 7,
        requests: 40_000,
        rate_per_s: 40.0,
        work_mean_s: 2.0,
        work_sigma: 1.0,
        proxies: 16,
    };

    #[test]
    fn same_seed_same_requests_and_another_seed_others() {
        assert_eq!(SHAPE.draw(), SHAPE.draw());
        assert_ne!(SHAPE.draw(), Shape { seed: 8, ..SHAPE }.draw());
    }

    #[test]
    fn load_and_proxies_leave_the_work_alone() {
        let other = Shape { rate_per_s: 10.0, proxies: 3, ..SHAPE }.draw();
        assert!(
            SHAPE.draw().iter().zip(&other).all(|(a, b)| a.work_s.to_bits() == b.work_s.to_bits())
        );
    }

    #[test]
    fn rate_mean_and_spread_are_as_asked() {
        let drawn = SHAPE.draw();
        // 40,000 at 40 a second take 1,000 s; the deviation is 1,000 / √40,000 = 5 s.
        let last_s = drawn.last().unwrap().at as f64 / SECOND;
        assert!((980.0..1_020.0).contains(&last_s), "{last_s}");
        // The deviation of one is 2 × √(e − 1) = 2.6, of the mean of 40,000 it is 0.013.
        let mean = drawn.iter().map(|a| a.work_s).sum::<f64>() / 40_000.0;
        assert!((1.94..2.06).contains(&mean), "{mean}");
        for proxy in 0..16 {
            // 2,500 each, with a deviation of 48.
            let count = drawn.iter().filter(|a| a.proxy == proxy).count();
            assert!((2_300..2_700).contains(&count), "{proxy}: {count}");
        }
        assert!(drawn.is_sorted_by_key(|a| a.at));
    }
}
