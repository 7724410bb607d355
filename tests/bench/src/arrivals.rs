//! The arrivals of an open-loop run: when, how much work, through which proxy. Pure; a seed gives the same plan.
//!
//! Poisson arrivals with a rate that may rise for a while, lognormal work. Gaps, works and proxies come from generators
//! of their own, so that two plans that differ in one of them share the others: what is compared sees the same requests.

use tidegate_policy::chance::Chance;
use tidegate_sim::arrivals::{exponential, normal};

/// One request to come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    /// Since the start of the run.
    pub at_us: u64,
    /// At speed 1.0; whole milliseconds, since the header that carries it is whole.
    pub work_ms: u32,
    pub proxy: u16,
}

/// A while with more arrivals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Surge {
    pub from_s: f64,
    pub to_s: f64,
    pub factor: f64,
}

/// What the plan is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    pub seed: u64,
    pub seconds: f64,
    pub rate_per_s: f64,
    pub surges: Vec<Surge>,
    pub work_mean_ms: f64,
    /// Of the logarithm of the work; 1.0 puts P99 at 6.2 times the mean.
    pub work_sigma: f64,
    pub proxies: u16,
}

impl Shape {
    pub fn plan(&self) -> Vec<Arrival> {
        let mut gaps = generator(self.seed);
        let mut works = generator(self.seed.wrapping_add(1_000));
        let mut proxies = generator(self.seed.wrapping_add(2_000));
        let mu = self.work_mean_ms.ln() - self.work_sigma * self.work_sigma / 2.0;
        let mut plan = Vec::new();
        let mut now_s = 0.0;
        loop {
            now_s = self.after(now_s, exponential(&mut gaps));
            if now_s >= self.seconds {
                return plan;
            }
            let work_ms = (mu + self.work_sigma * normal(&mut works)).exp();
            plan.push(Arrival {
                at_us: (now_s * 1e6) as u64,
                work_ms: work_ms.round().clamp(1.0, 1e7) as u32,
                proxy: (proxies.unit() * f64::from(self.proxies.max(1))) as u16,
            });
        }
    }

    /// The time at which `mass` further arrivals are expected after `now_s`.
    fn after(&self, now_s: f64, mass: f64) -> f64 {
        let mut now_s = now_s;
        let mut mass = mass;
        loop {
            let factor: f64 = self
                .surges
                .iter()
                .filter(|s| s.from_s <= now_s && now_s < s.to_s)
                .map(|s| s.factor)
                .product();
            let rate = self.rate_per_s * factor;
            let edge = self
                .surges
                .iter()
                .flat_map(|s| [s.from_s, s.to_s])
                .filter(|edge| *edge > now_s)
                .fold(f64::INFINITY, f64::min);
            if mass <= (edge - now_s) * rate || edge.is_infinite() {
                return now_s + mass / rate;
            }
            mass -= (edge - now_s) * rate;
            now_s = edge;
        }
    }
}

/// A generator of its own for each seed.
fn generator(seed: u64) -> Chance {
    let mut chance =
        Chance::seeded(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x0123_4567));
    chance.bits();
    chance
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape {
            seed: 7,
            seconds: 1_000.0,
            rate_per_s: 40.0,
            surges: Vec::new(),
            work_mean_ms: 1_000.0,
            work_sigma: 1.0,
            proxies: 16,
        }
    }

    #[test]
    fn same_seed_gives_the_same_plan_and_another_seed_another() {
        assert_eq!(shape().plan(), shape().plan());
        assert_ne!(shape().plan(), Shape { seed: 8, ..shape() }.plan());
    }

    #[test]
    fn rate_mean_and_spread_over_proxies_are_as_asked() {
        let plan = shape().plan();
        // 40 a second for 1,000 s: 40,000 with a standard deviation of 200.
        assert!((39_000..41_000).contains(&plan.len()), "{}", plan.len());
        let mean = plan.iter().map(|a| f64::from(a.work_ms)).sum::<f64>() / plan.len() as f64;
        assert!((960.0..1_040.0).contains(&mean), "{mean}");
        for proxy in 0..16 {
            let share = plan.iter().filter(|a| a.proxy == proxy).count() as f64 / plan.len() as f64;
            assert!((0.055..0.070).contains(&share), "{proxy}: {share}");
        }
        assert!(plan.is_sorted_by_key(|a| a.at_us));
    }

    #[test]
    fn surge_multiplies_arrivals_inside_it_only() {
        let surge = Surge { from_s: 400.0, to_s: 500.0, factor: 3.0 };
        let plan = Shape { surges: vec![surge], ..shape() }.plan();
        let between = |from: u64, to: u64| {
            plan.iter().filter(|a| (from * 1_000_000..to * 1_000_000).contains(&a.at_us)).count()
        };
        // 100 s at 40/s and at 120/s: 4,000 and 12,000.
        assert!((3_750..4_250).contains(&between(300, 400)));
        assert!((11_500..12_500).contains(&between(400, 500)));
        assert!((3_750..4_250).contains(&between(500, 600)));
    }
}
