//! What a scenario file may say; every mistake in it is told at once.
//!
//! A scenario is a fleet, some points (server model, load, number of proxies), some runs (who balances, and
//! what it is told how often), and faults. Every run meets every point. What is left out is the table that
//! ranks the policies where large models are served: requests of 5 s, 64 and 1,024 proxies, load 0.7 and 0.85.

use tidegate_policy::{config::Policy, units::Span};
use tidegate_strict::{ConfigError, Need, Node, Value};

use crate::{
    baseline::Rule,
    fault::{Fault, FaultKind},
    plane::PlaneKind,
    server::Spec,
    world::Contender,
};

const REQUESTS_MAX: u64 = 10_000_000;
const GPUS_MAX: usize = 5_000;
const LIST_MAX: usize = 64;

/// A scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub requests: usize,
    /// Seeds from the first on; ratios are their means.
    pub seeds: u64,
    pub work_mean_s: f64,
    pub work_sigma: f64,
    /// Speed of each GPU.
    pub speeds: Vec<f64>,
    pub points: Vec<Point>,
    pub runs: Vec<Run>,
    pub delay: Span,
    pub loss: f64,
    pub retries: u8,
    pub error_rate: f64,
    pub faults: Vec<Fault>,
}

/// Where runs are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub model: Model,
    pub load: f64,
    pub proxies: u32,
}

/// How a GPU serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Model {
    /// 8 slots that do not hinder each other.
    Slots,
    /// A batch of up to 16; each further request slows all by a tenth of a lone one's pace.
    Batch,
}

impl Model {
    pub const ALL: [Self; 2] = [Self::Slots, Self::Batch];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Slots => "slots",
            Self::Batch => "batch",
        }
    }

    #[must_use]
    pub const fn spec(self, speed: f64) -> Spec {
        match self {
            Self::Slots => Spec { speed, slots: 8, slowdown: 0.0 },
            Self::Batch => Spec { speed, slots: 16, slowdown: 0.1 },
        }
    }
}

/// Who balances, and how often it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    pub contender: Contender,
    /// Period of updates; no matter to baselines.
    pub period: Span,
}

const fn gate(policy: Policy, plane: PlaneKind, period_ms: u64) -> Run {
    Run { contender: Contender::Gate { policy, plane }, period: Span::ms(period_ms) }
}

const fn baseline(rule: Rule) -> Run {
    Run { contender: Contender::Baseline(rule), period: Span::ms(500) }
}

/// The names of contenders in files and tables.
#[must_use]
pub const fn name(contender: Contender) -> &'static str {
    match contender {
        Contender::Baseline(Rule::RoundRobin) => "round_robin",
        Contender::Baseline(Rule::LeastRequestLocal) => "least_request_local",
        Contender::Baseline(Rule::EnvoyWeighted) => "envoy_weighted",
        Contender::Gate { policy, .. } => policy.as_str(),
    }
}

fn default_runs() -> Vec<Run> {
    use PlaneKind::{Board, Weigher};
    let mut runs = vec![
        baseline(Rule::RoundRobin),
        baseline(Rule::LeastRequestLocal),
        baseline(Rule::EnvoyWeighted),
        gate(Policy::Weighted, Board, 500),
        gate(Policy::LeastRequest, Board, 500),
    ];
    for plane in [Board, Weigher] {
        runs.extend([200, 500, 1_000].map(|period_ms| gate(Policy::LiSlots, plane, period_ms)));
    }
    runs
}

fn default_points() -> Vec<Point> {
    let mut points = Vec::new();
    for proxies in [64, 1_024] {
        for model in Model::ALL {
            points.extend([0.7, 0.85].map(|load| Point { model, load, proxies }));
        }
    }
    points
}

fn default_speeds() -> Vec<f64> {
    vec![1.0, 1.0, 1.0, 1.0, 0.45, 0.45, 0.45, 0.45]
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            requests: 80_000,
            seeds: 1,
            work_mean_s: 5.0,
            work_sigma: 1.0,
            speeds: default_speeds(),
            points: default_points(),
            runs: default_runs(),
            delay: Span::ZERO,
            loss: 0.0,
            retries: 0,
            error_rate: 0.0,
            faults: Vec::new(),
        }
    }
}

/// The scenario in `value`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(value: &Value) -> Result<Scenario, Vec<ConfigError>> {
    tidegate_strict::read(value, Scenario::read)
}

impl Scenario {
    /// Reads the fields of one scenario.
    pub fn read(node: &mut Node<'_>) -> Self {
        node.int("version", 1..=1, Need::Required, "format of this scenario");
        let requests = node.int(
            "requests",
            60..=REQUESTS_MAX,
            Need::Default(80_000),
            "requests of each run; the first sixth is warm-up",
        );
        let seeds = node.int("seeds", 1..=100, Need::Default(1), "seeds, one after the other");
        let work_mean_ms = node.number(
            "work_mean_ms",
            1.0..=600_000.0,
            Need::Default(5_000.0),
            "mean work of a request at speed 1",
        );
        let work_sigma = node.number(
            "work_sigma",
            0.0..=3.0,
            Need::Default(1.0),
            "deviation of the logarithm of the work",
        );
        let gpus = node.list("gpus", 0..=LIST_MAX, "GPUs of one kind each", read_gpus);
        let mut speeds: Vec<f64> = gpus.into_iter().flatten().collect();
        if speeds.is_empty() {
            speeds = default_speeds();
        }
        if speeds.len() > GPUS_MAX {
            node.rule_broken("gpus", format!("{} are more than {GPUS_MAX}", speeds.len()));
        }
        let mut points = node.list("points", 0..=LIST_MAX, "where runs are compared", Point::read);
        if points.is_empty() {
            points = default_points();
        }
        let mut runs = node.list("runs", 0..=LIST_MAX, "who balances", Run::read);
        if runs.is_empty() {
            runs = default_runs();
        }
        let delay = node.int(
            "delay_ms",
            0..=60_000,
            Need::Default(0),
            "from the sample of a report to the proxies",
        );
        let loss = node.number(
            "loss",
            0.0..=1.0,
            Need::Default(0.0),
            "part of the updates that a proxy misses",
        );
        let retries = node.int("retries", 0..=5, Need::Default(0), "retries after the first try");
        let error_rate = node.number(
            "error_rate",
            0.0..=1.0,
            Need::Default(0.0),
            "part of the requests that end in an error although all is well",
        );
        let faults = node.list("faults", 0..=LIST_MAX, "what goes wrong", read_fault);
        for (i, fault) in faults.iter().enumerate() {
            if fault.endpoint.is_some_and(|endpoint| endpoint >= speeds.len()) {
                let text = format!("there are {} GPUs, counted from 0", speeds.len());
                node.rule_broken(&format!("faults[{i}].endpoint"), text);
            }
            if fault.to_s <= fault.from_s {
                node.rule_broken(&format!("faults[{i}].to_s"), "must be after from_s".into());
            }
        }
        Self {
            requests: usize::try_from(requests).unwrap_or(usize::MAX),
            seeds,
            work_mean_s: work_mean_ms / 1_000.0,
            work_sigma,
            speeds,
            points,
            runs,
            delay: Span::ms(delay),
            loss,
            retries: u8::try_from(retries).unwrap_or(u8::MAX),
            error_rate,
            faults,
        }
    }
}

fn read_gpus(node: &mut Node<'_>) -> Vec<f64> {
    let count = node.int("count", 1..=GPUS_MAX as u64, Need::Default(1), "how many");
    let speed = node.number("speed", 0.01..=100.0, Need::Default(1.0), "work per second");
    vec![speed; usize::try_from(count).unwrap_or(1)]
}

fn read_fault(node: &mut Node<'_>) -> Fault {
    let kinds = FaultKind::ALL.map(|kind| (kind.as_str(), kind));
    let kind = node.choice("kind", &kinds, kinds[0], "what happens");
    let endpoint = node.optional_int("endpoint", 0..=GPUS_MAX as u64, "which GPU; absent: all");
    Fault {
        kind,
        endpoint: endpoint.map(|index| usize::try_from(index).unwrap_or(usize::MAX)),
        from_s: node.number("from_s", 0.0..=1e9, Need::Default(0.0), "when it begins"),
        to_s: node.number("to_s", 0.0..=1e9, Need::Default(1e9), "when it is over"),
    }
}

impl Point {
    fn read(node: &mut Node<'_>) -> Self {
        let models = Model::ALL.map(|model| (model.as_str(), model));
        let proxies = node.int("proxies", 1..=10_000, Need::Default(64), "Envoy processes");
        Self {
            model: node.choice("model", &models, models[0], "how a GPU serves"),
            load: node.number("load", 0.01..=2.0, Need::Default(0.85), "part of all capacity"),
            proxies: u32::try_from(proxies).unwrap_or(u32::MAX),
        }
    }
}

impl Run {
    fn read(node: &mut Node<'_>) -> Self {
        let planes = PlaneKind::ALL.map(|kind| (kind.as_str(), kind));
        let plane = node.choice("control_plane", &planes, planes[0], "who sends updates");
        let rules = [Rule::RoundRobin, Rule::LeastRequestLocal, Rule::EnvoyWeighted];
        let gates = Policy::ALL.map(|policy| Contender::Gate { policy, plane });
        let contenders: Vec<(&'static str, Contender)> = gates
            .into_iter()
            .chain(rules.map(Contender::Baseline))
            .map(|contender| (name(contender), contender))
            .collect();
        let contender = node.choice("policy", &contenders, contenders[0], "who balances");
        let period_ms = node.int("period_ms", 50..=60_000, Need::Default(500), "between updates");
        Self { contender, period: Span::ms(period_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Scenario, String> {
        let value: Value = serde_json::from_str(json).unwrap();
        parse(&value)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn nothing_but_a_version_is_the_default() {
        assert_eq!(read(r#"{"version": 1}"#), Ok(Scenario::default()));
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let told = read(
            r#"{"requests": 1, "loss": 2, "gpus": [{"count": 2}], "points": [{"model": "gpu"}],
                "runs": [{"policy": "best"}], "colour": 1,
                "faults": [{"kind": "down", "endpoint": 2, "from_s": 5, "to_s": 5}]}"#,
        )
        .unwrap_err();
        for path in [
            "version",
            "requests",
            "loss",
            "points[0].model",
            "runs[0].policy",
            "colour",
            "faults[0].endpoint",
            "faults[0].to_s",
        ] {
            assert!(told.contains(path), "{path} is not in:\n{told}");
        }
    }

    #[test]
    fn scenario_files_are_good() {
        for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios")).unwrap() {
            let path = file.unwrap().path();
            let json = std::fs::read_to_string(&path).unwrap();
            assert!(read(&json).is_ok(), "{}: {:?}", path.display(), read(&json));
        }
    }
}
