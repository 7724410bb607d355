//! Balancers that know only what one proxy counts itself: what a fleet of sidecars has without a control plane.
//!
//! | balancer | rule |
//! |---|---|
//! | `round_robin` | in turn from a random start |
//! | `least_request_local` | two at random, the one with fewer own requests: Envoy's default |
//! | `envoy_weighted` | Envoy's least request with weights: a deadline queue, each visit costs (own + 1) / weight |

use tidegate_policy::chance::Chance;

/// The rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    RoundRobin,
    LeastRequestLocal,
    EnvoyWeighted,
}

/// One proxy with such a rule.
#[derive(Clone, Debug)]
pub struct Baseline {
    rule: Rule,
    chance: Chance,
    own: Vec<u32>,
    /// Next in turn.
    turn: usize,
    /// Deadline and weight of each endpoint; the earliest is next.
    deadlines: Vec<f64>,
    shares: Vec<f64>,
}

impl Baseline {
    /// `weights` are what each endpoint can do.
    #[must_use]
    pub fn new(rule: Rule, mut chance: Chance, weights: &[f64]) -> Self {
        let total: f64 = weights.iter().sum();
        let turn = (chance.unit() * weights.len() as f64) as usize;
        // Proxies that start in step would stay in step.
        let deadlines = weights.iter().map(|w| chance.unit() * total / w).collect();
        let shares = weights.iter().map(|w| w / total).collect();
        Self { rule, chance, own: vec![0; weights.len()], turn, deadlines, shares }
    }

    /// The endpoint for one try.
    pub fn pick(&mut self) -> usize {
        let n = self.own.len();
        match self.rule {
            Rule::RoundRobin => {
                self.turn = (self.turn + 1) % n;
                self.turn
            }
            Rule::LeastRequestLocal => {
                let draw = |chance: &mut Chance, n: usize| (chance.unit() * n as f64) as usize;
                let first = draw(&mut self.chance, n);
                if n == 1 {
                    return first;
                }
                let second = draw(&mut self.chance, n - 1);
                let second = if second >= first { second + 1 } else { second };
                if self.own[second] < self.own[first] { second } else { first }
            }
            Rule::EnvoyWeighted => {
                let earliest = |a: &usize, b: &usize| {
                    self.deadlines[*a].total_cmp(&self.deadlines[*b]).then(a.cmp(b))
                };
                let at = (0..n).min_by(earliest).unwrap_or(0);
                // The pick itself is one of the active requests when its weight is computed.
                self.deadlines[at] += f64::from(self.own[at] + 2) / self.shares[at];
                at
            }
        }
    }

    pub fn started(&mut self, endpoint: usize) {
        self.own[endpoint] += 1;
    }

    pub fn ended(&mut self, endpoint: usize) {
        self.own[endpoint] = self.own[endpoint].saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(rule: Rule, weights: &[f64], own: &[u32]) -> Vec<f64> {
        let mut balancer = Baseline::new(rule, Chance::seeded(1), weights);
        for (endpoint, own) in own.iter().enumerate() {
            (0..*own).for_each(|_| balancer.started(endpoint));
        }
        let mut picks = vec![0.0; weights.len()];
        (0..9_000).for_each(|_| picks[balancer.pick()] += 1.0 / 9_000.0);
        picks
    }

    fn check(rule: Rule, weights: &[f64], own: &[u32], expected: &[f64]) {
        let found = shares(rule, weights, own);
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.02), "{found:?}");
    }

    #[test]
    fn shares_of_each_rule() {
        let third = 1.0 / 3.0;
        check(Rule::RoundRobin, &[1.0, 2.0, 3.0], &[0, 0, 9], &[third, third, third]);
        // Ties go to the first of the two, which is anyone.
        check(Rule::LeastRequestLocal, &[1.0, 2.0, 3.0], &[0, 0, 0], &[third, third, third]);
        // The first wins both pairs it is in, 2 of 3; the second wins the pair without it.
        check(Rule::LeastRequestLocal, &[1.0; 3], &[0, 1, 2], &[2.0 * third, third, 0.0]);
        // 1 / 2 : 2 / 2 : 3 / 2
        check(Rule::EnvoyWeighted, &[1.0, 2.0, 3.0], &[0, 0, 0], &[1.0 / 6.0, third, 0.5]);
        // 1 / 2 : 2 / 4 : 3 / 2 = 1 : 1 : 3
        check(Rule::EnvoyWeighted, &[1.0, 2.0, 3.0], &[0, 2, 0], &[0.2, 0.2, 0.6]);
    }
}
