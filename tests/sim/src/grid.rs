//! The runs of a scenario: every run at every point, over the same requests, as ratios to the ideal.

use crate::{
    arrivals::{Arrival, Shape},
    ideal::central_queue,
    plane::Facts,
    quantile::quantile,
    scenario::{Point, Run, Scenario},
    server::Spec,
    world::{self, End, Record, Setup},
};

/// The first part of a run, which starts with an empty fleet, is left out.
pub const WARM_UP: f64 = 1.0 / 6.0;

/// The median and the longest hundredth, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantiles {
    pub p50_s: f64,
    pub p99_s: f64,
}

impl Quantiles {
    #[must_use]
    pub fn of(mut took_s: Vec<f64>) -> Self {
        took_s.sort_by(f64::total_cmp);
        let at = |q| quantile(&took_s, q).unwrap_or(0.0);
        Self { p50_s: at(0.5), p99_s: at(0.99) }
    }
}

/// One run at one point with one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub quantiles: Quantiles,
    pub ideal: Quantiles,
    /// Requests after the warm-up that ended well, in an error, and without an endpoint.
    pub ok: u64,
    pub broken: u64,
    pub refused: u64,
    /// Part of the tries after the warm-up that each endpoint got.
    pub shares: Vec<f64>,
    pub record: Record,
}

impl Measured {
    #[must_use]
    pub fn p50_ratio(&self) -> f64 {
        self.quantiles.p50_s / self.ideal.p50_s
    }

    #[must_use]
    pub fn p99_ratio(&self) -> f64 {
        self.quantiles.p99_s / self.ideal.p99_s
    }
}

/// A point with its requests and its ideal, for all runs there.
#[derive(Clone, Debug)]
pub struct Ground {
    pub seed: u64,
    pub specs: Vec<Spec>,
    pub rate_per_s: f64,
    pub arrivals: Vec<Arrival>,
    pub ideal: Quantiles,
}

impl Ground {
    #[must_use]
    pub fn new(scenario: &Scenario, point: &Point, seed: u64) -> Self {
        let specs: Vec<Spec> = scenario.speeds.iter().map(|s| point.model.spec(*s)).collect();
        let capacity: f64 = specs.iter().map(Spec::capacity).sum();
        let rate_per_s = point.load * capacity / scenario.work_mean_s;
        let shape = Shape {
            seed,
            requests: scenario.requests,
            rate_per_s,
            work_mean_s: scenario.work_mean_s,
            work_sigma: scenario.work_sigma,
            proxies: point.proxies as usize,
        };
        let arrivals = shape.draw();
        let took_s = central_queue(&specs, &arrivals).split_off(warm(arrivals.len()));
        Self { seed, specs, rate_per_s, arrivals, ideal: Quantiles::of(took_s) }
    }

    /// Runs one contender here.
    #[must_use]
    pub fn measure(&self, scenario: &Scenario, point: &Point, run: &Run) -> Measured {
        let setup = Setup {
            seed: self.seed,
            contender: run.contender,
            facts: Facts {
                period: run.period,
                proxies: point.proxies,
                specs: self.specs.clone(),
                work_mean_s: scenario.work_mean_s,
                rate_per_s: self.rate_per_s,
            },
            retries: scenario.retries,
            delay: scenario.delay,
            loss: scenario.loss,
            error_rate: scenario.error_rate,
            faults: scenario.faults.clone(),
        };
        self.judge(world::run(&setup, &self.arrivals))
    }

    fn judge(&self, record: Record) -> Measured {
        let warm = warm(self.arrivals.len());
        let (mut took, mut broken, mut refused) = (Vec::new(), 0, 0);
        for end in record.ends.iter().skip(warm).flatten() {
            match end {
                End::Ok { took_s } => took.push(*took_s),
                End::Broken => broken += 1,
                End::Refused => refused += 1,
            }
        }
        let mut shares = vec![0.0; self.specs.len()];
        let tries: Vec<usize> =
            record.tries.iter().filter(|t| t.request >= warm).map(|t| t.endpoint).collect();
        tries.iter().for_each(|endpoint| shares[*endpoint] += 1.0 / tries.len() as f64);
        Measured {
            ok: took.len() as u64,
            quantiles: Quantiles::of(took),
            ideal: self.ideal,
            broken,
            refused,
            shares,
            record,
        }
    }
}

/// The first request that counts.
#[must_use]
pub fn warm(requests: usize) -> usize {
    (requests as f64 * WARM_UP) as usize
}

/// One cell of the table: the means over all seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    pub point: Point,
    pub run: Run,
    pub p50_ratio: f64,
    pub p99_ratio: f64,
    pub quantiles: Quantiles,
    pub ok: u64,
    pub broken: u64,
    pub refused: u64,
    /// Share of the tries at each endpoint, with the first seed.
    pub shares: Vec<f64>,
    /// Picks by reason, with the first seed.
    pub reasons: Vec<(&'static str, u64)>,
}

/// Runs the whole scenario from `seed` on; `progress` is told before each point and seed.
pub fn measure(scenario: &Scenario, seed: u64, mut progress: impl FnMut(&Point, u64)) -> Vec<Cell> {
    let mut cells = Vec::new();
    for point in &scenario.points {
        let mut at_point: Vec<Option<Cell>> = vec![None; scenario.runs.len()];
        for seed in (0..scenario.seeds).map(|i| seed.wrapping_add(i)) {
            progress(point, seed);
            let ground = Ground::new(scenario, point, seed);
            for (run, cell) in scenario.runs.iter().zip(&mut at_point) {
                let measured = ground.measure(scenario, point, run);
                let part = 1.0 / scenario.seeds as f64;
                let cell = cell.get_or_insert_with(|| Cell {
                    point: *point,
                    run: *run,
                    p50_ratio: 0.0,
                    p99_ratio: 0.0,
                    quantiles: Quantiles::default(),
                    ok: 0,
                    broken: 0,
                    refused: 0,
                    shares: measured.shares.clone(),
                    reasons: measured.record.reasons.iter().map(|(r, n)| (*r, *n)).collect(),
                });
                cell.p50_ratio += part * measured.p50_ratio();
                cell.p99_ratio += part * measured.p99_ratio();
                cell.quantiles.p50_s += part * measured.quantiles.p50_s;
                cell.quantiles.p99_s += part * measured.quantiles.p99_s;
                cell.ok += measured.ok;
                cell.broken += measured.broken;
                cell.refused += measured.refused;
            }
        }
        cells.extend(at_point.into_iter().flatten());
    }
    cells
}
