//! How fast a gate and a share may move.
//!
//! ```text
//! gate    falls at once, rises at most 0.1/s; never rises while health data is late
//! share   part of the service's weight: within 0.01..=3 of its fair share (by GPU type; no upper bound
//!         under 3 endpoints), moves at most 0.1/s and by a factor of 1.5/s
//! weight  share / largest share · 10000; published anew only when it changed by more than 5 %
//! ```
//! Gates carry what is urgent, so shares can be slow. All shares of a service move together along the
//! line from old to new, as far as the tightest limit allows: the sum stays 1 and no limit is broken,
//! where clamping one by one and renormalising would break them again. A fair share is by type, not
//! 1/N, or a large card among small ones could never be used.
use alloc::vec::Vec;

use tidegate_policy::units::{PerMille, Span, Weight};

use crate::numbers::{STEP_MAX, bounded};

const GATE_RISE_PER_S: f64 = 0.1;
const SHARE_STEP_PER_S: f64 = 0.1;
const SHARE_FACTOR_PER_S: f64 = 1.5;
const FLOOR: f64 = 0.01;
const CEILING: f64 = 3.0;
const CEILING_ENDPOINTS_MIN: usize = 3;
const DEAD_BAND: f64 = 0.05;

/// Whether a gate may rise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rise {
    Allowed,
    Held,
}

/// The next gate.
pub(crate) fn next_gate(old: Option<f64>, target: f64, dt: Span, rise: Rise) -> f64 {
    let target = bounded(target, 0.0, 1.0);
    let Some(old) = old else { return target };
    let step = match rise {
        Rise::Allowed => GATE_RISE_PER_S * dt.min(STEP_MAX).as_secs_f64(),
        Rise::Held => 0.0,
    };
    target.min(old + step)
}

/// Per mille, rounded down so that a rise is never rounded up; a gate above zero stays above zero.
pub(crate) fn per_mille(gate: f64) -> PerMille {
    let gate = bounded(gate, 0.0, 1.0);
    let floor = libm::floor(gate * 1_000.0 + 1e-6) as u32;
    PerMille::clamped(if gate > 0.0 { floor.max(1) } else { 0 })
}

/// Shares that sum to 1; equal ones when nothing is usable.
pub(crate) fn shares(values: &[f64]) -> Vec<f64> {
    let total: f64 = values.iter().copied().filter(|v| v.is_finite() && *v > 0.0).sum();
    if !total.is_finite() || total <= 0.0 {
        let n = values.len().max(1) as f64;
        return values.iter().map(|_| 1.0 / n).collect();
    }
    values.iter().map(|v| if v.is_finite() && *v > 0.0 { v / total } else { 0.0 }).collect()
}

/// Brings shares within their bounds around the fair ones; what is cut goes to the others in proportion.
pub(crate) fn within_bounds(target: &[f64], fair: &[f64]) -> Vec<f64> {
    let ceiling = if target.len() < CEILING_ENDPOINTS_MIN { f64::INFINITY } else { CEILING };
    let clamp = |share: f64, fair: f64| bounded(share, FLOOR * fair, (ceiling * fair).min(1.0));
    // Σ clamp(k·share) grows with k from Σ floors < 1 to Σ ceilings ≥ 1, so some k gives exactly 1.
    let sum = |k: f64| -> f64 { target.iter().zip(fair).map(|(s, f)| clamp(s * k, *f)).sum() };
    let (mut low, mut high) = (0.0_f64, 1e6_f64);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if sum(middle) < 1.0 { low = middle } else { high = middle }
    }
    shares(&target.iter().zip(fair).map(|(s, f)| clamp(s * high, *f)).collect::<Vec<_>>())
}

/// Moves shares from `old` towards `target`; an endpoint without an old share starts at its target.
pub(crate) fn move_shares(old: &[Option<f64>], target: &[f64], dt: Span) -> Vec<f64> {
    let new_part: f64 = old.iter().zip(target).filter(|(o, _)| o.is_none()).map(|(_, t)| *t).sum();
    let old_sum: f64 = old.iter().flatten().sum();
    if !old_sum.is_finite() || old_sum <= 0.0 {
        return shares(target);
    }
    // Newcomers take their part from all in proportion, and leavers give theirs back likewise.
    let scale = bounded(1.0 - new_part, 0.0, 1.0) / old_sum;
    let start: Vec<f64> =
        old.iter().zip(target).map(|(o, t)| o.map_or(*t, |o| o * scale)).collect();

    let seconds = dt.min(STEP_MAX).as_secs_f64();
    let factor = libm::pow(SHARE_FACTOR_PER_S, seconds);
    let part = start.iter().zip(target).map(|(s, t)| {
        let wanted = libm::fabs(t - s);
        let by_factor = if t > s { s * (factor - 1.0) } else { s * (1.0 - 1.0 / factor) };
        let allowed = by_factor.min(SHARE_STEP_PER_S * seconds);
        if wanted <= allowed || wanted <= 1e-12 { 1.0 } else { allowed / wanted }
    });
    let part = bounded(part.fold(1.0, f64::min), 0.0, 1.0);
    shares(&start.iter().zip(target).map(|(s, t)| s + part * (t - s)).collect::<Vec<_>>())
}

/// Weights in proportion to the shares, the largest 10000.
pub(crate) fn weights(shares: &[f64]) -> Vec<Weight> {
    let largest = shares.iter().copied().fold(0.0, f64::max);
    shares
        .iter()
        .map(|s| {
            let scaled = if largest > 0.0 { s / largest * 10_000.0 } else { 10_000.0 };
            Weight::clamped(libm::round(bounded(scaled, 1.0, 10_000.0)) as u32)
        })
        .collect()
}

/// Keeps the published weight while the new one is within 5 % of it.
pub(crate) fn with_dead_band(published: Option<Weight>, new: Weight) -> Weight {
    let Some(old) = published else { return new };
    let change = libm::fabs(f64::from(new.get()) - f64::from(old.get()));
    if change > DEAD_BAND * f64::from(old.get()) { new } else { old }
}

#[cfg(test)]
mod tests;
