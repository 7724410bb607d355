//! What an endpoint can do when it is saturated, relative to one A100.
//!
//! ```text
//! type      operator's figure, else Σ over its GPUs of the table; an unknown name gets the median of
//!           the known ones of its service, so a new card is neither favoured nor starved
//! learned   completed tokens/s or requests/s while in flight ≥ 0.8·slots and the gate ≥ 0.9, τ = 10 min,
//!           scaled so that Σ learned = Σ type over the endpoints that have learned
//! used      type·(1−c) + c·clamp(learned, 0.25..2 of type), c = confidence
//! ```
//! Only saturated seconds teach, for an idle GPU shows demand and not capacity; only healthy ones, or a
//! throttled spell would be punished twice. The clamp bounds what a lying report can gain.
use alloc::vec::Vec;

use tidegate_policy::units::Span;

use crate::{
    numbers::{bounded, median},
    settings::TypeCapacity,
};

/// Part of a name → throughput relative to one A100 80 GB; the first that matches counts.
///
/// Blends of memory bandwidth and half-precision throughput from data sheets: a starting point that
/// learning corrects, and that an operator can override.
const TABLE: &[(&str, f64)] = &[
    ("gb300", 4.5),
    ("b300", 4.5),
    ("gb200", 4.0),
    ("b200", 3.8),
    ("b100", 3.2),
    ("gh200", 2.4),
    ("h200", 2.3),
    ("h100 nvl", 1.9),
    ("h100 pcie", 1.3),
    ("h100", 1.8),
    ("h800", 1.7),
    ("h20", 1.0),
    ("a100-sxm4-40gb", 0.85),
    ("a100-pcie-40gb", 0.8),
    ("a100", 1.0),
    ("a800", 1.0),
    ("v100", 0.45),
    ("l40s", 0.6),
    ("l40", 0.5),
    ("l20", 0.45),
    ("l4", 0.25),
    ("a40", 0.4),
    ("a30", 0.5),
    ("a10", 0.35),
    ("a16", 0.1),
    ("t4", 0.15),
    ("p100", 0.25),
    ("p40", 0.15),
    ("rtx pro 6000", 1.1),
    ("rtx 6000 ada", 0.55),
    ("rtx a6000", 0.4),
    ("rtx 5090", 1.0),
    ("rtx 4090", 0.6),
    ("rtx 3090", 0.45),
];

/// Bounds on any capacity: beyond them a figure is a mistake.
const CAPACITY_MIN: f64 = 0.01;
const CAPACITY_MAX: f64 = 1_000.0;
const TAU: Span = Span::secs(600);
const SATURATED: f64 = 0.8;
const HEALTHY_GATE: f64 = 0.9;
const LEARNED_MIN: f64 = 0.25;
const LEARNED_MAX: f64 = 2.0;
/// Above this a rate is a mistake.
const RATE_MAX: f64 = 1e9;

/// Capacity of a GPU by its product name; `None` for a name that nobody knows.
#[must_use]
pub fn of_type(name: &str, overrides: &[TypeCapacity]) -> Option<f64> {
    let name = name.to_ascii_lowercase();
    let set = overrides
        .iter()
        .filter(|o| !o.name_contains.is_empty())
        .find(|o| name.contains(&o.name_contains.to_ascii_lowercase()))
        .map(|o| o.capacity);
    set.or_else(|| TABLE.iter().find(|(part, _)| has_word(&name, part)).map(|(_, c)| *c)).map(clamp)
}

/// `part` stands in `name` and is not the beginning or end of a longer model number: `l4` is not in `l40`.
fn has_word(name: &str, part: &str) -> bool {
    name.match_indices(part).any(|(at, _)| {
        let before = name.get(..at).and_then(|s| s.chars().next_back());
        let after = name.get(at.saturating_add(part.len())..).and_then(|s| s.chars().next());
        // `A10G` and `L40S` are cards of their own; a letter behind is a variant of the same chip.
        !before.is_some_and(|c| c.is_ascii_alphanumeric())
            && !after.is_some_and(|c| c.is_ascii_digit())
    })
}

pub(crate) fn clamp(capacity: f64) -> f64 {
    bounded(capacity, CAPACITY_MIN, CAPACITY_MAX)
}

/// Fills the unknown capacities of a service with the median of the known, 1 when none is known.
pub(crate) fn fill_unknown(known: &[Option<f64>]) -> Vec<f64> {
    let neutral = median(known.iter().flatten().copied()).unwrap_or(1.0);
    known.iter().map(|c| c.unwrap_or(neutral)).collect()
}

/// An exponential average that knows how much it has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Learner {
    sum: f64,
    /// 0..1: weight of all observations so far.
    confidence: f64,
}

impl Learner {
    pub(crate) fn observe(&mut self, rate: f64, dt: Span) {
        if !rate.is_finite() || rate < 0.0 {
            return;
        }
        let keep = libm::exp(-dt.as_secs_f64() / TAU.as_secs_f64());
        self.sum = self.sum * keep + bounded(rate, 0.0, RATE_MAX) * (1.0 - keep);
        self.confidence = self.confidence * keep + (1.0 - keep);
    }

    pub(crate) fn rate(self) -> Option<f64> {
        (self.confidence > 1e-6 && self.sum > 0.0).then(|| self.sum / self.confidence)
    }
}

/// Whether what an endpoint completes now shows its capacity.
pub(crate) fn is_teaching(in_flight: Option<u32>, slots: Option<u32>, gate: f64) -> bool {
    let (Some(in_flight), Some(slots)) = (in_flight, slots) else { return false };
    slots > 0 && f64::from(in_flight) >= SATURATED * f64::from(slots) && gate >= HEALTHY_GATE
}

/// What one endpoint has shown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Learned {
    pub(crate) tokens: Learner,
    pub(crate) requests: Learner,
}

/// A capacity with its parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Capacity {
    pub(crate) of_type: f64,
    pub(crate) learned: Option<f64>,
    pub(crate) confidence: f64,
    pub(crate) used: f64,
}

/// Combines type and learning over one service. Fixed capacities (the operator's) do not learn.
pub(crate) fn combine(types: &[f64], learned: &[Option<Learned>]) -> Vec<Capacity> {
    // Tokens say more than requests, but only one unit can be compared across endpoints.
    let seen = |unit: fn(&Learned) -> Learner| -> f64 {
        learned.iter().flatten().map(|l| unit(l).confidence).sum()
    };
    let (tokens, requests) = (seen(|l| l.tokens), seen(|l| l.requests));
    let unit: fn(&Learned) -> Learner =
        if tokens > 0.0 && tokens >= requests * 0.5 { |l| l.tokens } else { |l| l.requests };
    let learner = |l: &Option<Learned>| l.as_ref().map(unit).filter(|l| l.rate().is_some());

    let (mut rates, mut capacities) = (0.0, 0.0);
    for (of_type, l) in types.iter().zip(learned) {
        if let Some(l) = learner(l) {
            rates += l.confidence * l.rate().unwrap_or(0.0);
            capacities += l.confidence * of_type;
        }
    }
    types
        .iter()
        .zip(learned)
        .map(|(of_type, l)| {
            let plain =
                Capacity { of_type: *of_type, learned: None, confidence: 0.0, used: *of_type };
            let Some(l) = learner(l).filter(|_| rates > 0.0) else { return plain };
            let shown = l.rate().unwrap_or(0.0) * capacities / rates;
            let shown = bounded(shown, LEARNED_MIN * of_type, LEARNED_MAX * of_type);
            let confidence = bounded(l.confidence, 0.0, 1.0);
            let used = clamp(of_type * (1.0 - confidence) + shown * confidence);
            Capacity { of_type: *of_type, learned: Some(shown), confidence, used }
        })
        .collect()
}

#[cfg(test)]
mod tests;
