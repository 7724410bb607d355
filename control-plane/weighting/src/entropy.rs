//! How much each indicator tells the endpoints of a service apart: the entropy weight method.
//!
//! ```text
//! z_ij = 0.002 + 0.998·clamp((x−low)/(high−low))   turned round for costs; ranges are physical, fixed
//! p_ij = z_ij / Σ_i z_ij      e_j = −Σ_i p_ij ln p_ij / ln n      d_j = 1 − e_j  (< 1e-4 → 0)
//! w_j  = d_j / Σ d            then one vote per group, blended with a prior, within 0.05..=0.5
//! score_i = Σ_j w_j z_ij
//! ```
//! Rejected: normalising on the minimum and maximum of the moment. One card at 10.1 GB/s among seven
//! at 10.0 then owns 91 % of all weight (test below); on the physical range it owns nothing.
//! Also rejected: setting a constant column to 0.5, as the classic method must. On a physical range its
//! value means something, a jump from 0.5 when one card differs by a degree means nothing, and an
//! endpoint that hides a value would gain from breaking the tie.
//! Entropy says what differs, not what a card can do, so the score only scales the capacity by
//! 0.5..=1.5 and below four endpoints, where it is noise, the prior has 80 %.
use alloc::{vec, vec::Vec};

use crate::numbers::bounded;

/// Keeps logarithms finite and a worst value from being exactly nothing.
const SHIFT: f64 = 0.002;
/// Divergence below this is rounding.
const DIVERGENCE_MIN: f64 = 1e-4;
/// Below this many rows the entropy of a column is noise.
const ROWS_MIN: usize = 4;
const BLEND: f64 = 0.5;
const BLEND_FEW_ROWS: f64 = 0.2;
const WEIGHT_MIN: f64 = 0.05;
const WEIGHT_MAX: f64 = 0.5;

/// What is measured at an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Indicator {
    /// Utilisation of the multiprocessors, 0..=1.
    SmUse,
    /// Part of the power limit that is not drawn, 0..=1.
    PowerHeadroom,
    /// Degrees Celsius, 30 to the slowdown threshold.
    Temperature,
    /// Free part of the memory, 0..=1.
    MemoryFree,
    /// Utilisation of the memory controller, 0..=1.
    MemoryBandwidth,
    /// Busier direction of the PCIe link as part of its speed, 0..=1.
    PcieUse,
    /// Waiting requests as part of twice the slots, 0..=1.
    Queue,
    /// Used part of the KV cache, 0..=1.
    KvUse,
    /// 95th percentile of the time to first token as part of the objective, 0..=1.
    Ttft,
}

/// Indicators that move together share one vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IndicatorGroup {
    Compute,
    Memory,
    Bandwidth,
    Queue,
}

impl Indicator {
    pub const COUNT: usize = 9;
    pub const ALL: [Self; Self::COUNT] = [
        Self::SmUse,
        Self::PowerHeadroom,
        Self::Temperature,
        Self::MemoryFree,
        Self::MemoryBandwidth,
        Self::PcieUse,
        Self::Queue,
        Self::KvUse,
        Self::Ttft,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SmUse => "sm_use",
            Self::PowerHeadroom => "power_headroom",
            Self::Temperature => "temperature",
            Self::MemoryFree => "memory_free",
            Self::MemoryBandwidth => "memory_bandwidth",
            Self::PcieUse => "pcie_use",
            Self::Queue => "queue",
            Self::KvUse => "kv_use",
            Self::Ttft => "ttft",
        }
    }

    #[must_use]
    pub const fn group(self) -> IndicatorGroup {
        match self {
            Self::SmUse | Self::PowerHeadroom | Self::Temperature => IndicatorGroup::Compute,
            Self::MemoryFree | Self::KvUse => IndicatorGroup::Memory,
            Self::MemoryBandwidth | Self::PcieUse => IndicatorGroup::Bandwidth,
            Self::Queue | Self::Ttft => IndicatorGroup::Queue,
        }
    }
}

/// Whether more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Benefit,
    Cost,
}

/// The fixed range on which a value is normalised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhysicalRange {
    pub low: f64,
    pub high: f64,
    pub direction: Direction,
}

impl PhysicalRange {
    pub const UNIT_COST: Self = Self { low: 0.0, high: 1.0, direction: Direction::Cost };
    pub const UNIT_BENEFIT: Self = Self { low: 0.0, high: 1.0, direction: Direction::Benefit };

    /// 0.002 (worst) to 1 (best). A range without width says nothing and gives 0.5; what is not a number gives none.
    #[must_use]
    pub fn normalise(self, x: f64) -> Option<f64> {
        if x.is_nan() {
            return None;
        }
        let width = self.high - self.low;
        if !width.is_finite() || width <= 0.0 {
            return Some(0.5);
        }
        let benefit = bounded((x - self.low) / width, 0.0, 1.0);
        let z = match self.direction {
            Direction::Benefit => benefit,
            Direction::Cost => 1.0 - benefit,
        };
        Some(SHIFT + (1.0 - SHIFT) * z)
    }
}

/// `1 − entropy` of one column of normalised values: 0 where all are alike, towards 1 where one owns all.
#[must_use]
pub fn divergence(column: &[f64]) -> f64 {
    let total: f64 = column.iter().sum();
    if column.len() < 2 || !total.is_finite() || total <= 0.0 {
        return 0.0;
    }
    let entropy: f64 =
        column.iter().map(|z| z / total).filter(|p| *p > 0.0).map(|p| -p * libm::log(p)).sum();
    let d = 1.0 - entropy / libm::log(column.len() as f64);
    if d < DIVERGENCE_MIN { 0.0 } else { d.min(1.0) }
}

/// The plain method: one weight per column, by divergence alone; all zero where nothing differs.
#[must_use]
pub fn entropy_weights(columns: &[Vec<f64>]) -> Vec<f64> {
    let divergences: Vec<f64> = columns.iter().map(|c| divergence(c)).collect();
    normalised(divergences)
}

/// The prior weight of each indicator: which ones matter before any data is seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prior(pub [f64; Indicator::COUNT]);

impl Default for Prior {
    /// Utilisation 0.35, memory 0.30, temperature 0.15, bandwidth 0.20.
    fn default() -> Self {
        Self(Indicator::ALL.map(|indicator| match indicator {
            Indicator::SmUse => 0.35,
            Indicator::MemoryFree => 0.30,
            Indicator::Temperature => 0.15,
            Indicator::MemoryBandwidth => 0.20,
            Indicator::PowerHeadroom
            | Indicator::PcieUse
            | Indicator::Queue
            | Indicator::KvUse
            | Indicator::Ttft => 0.0,
        }))
    }
}

/// One endpoint's normalised values; `None` is missing.
pub type Row = [Option<f64>; Indicator::COUNT];

/// Weights of the indicators and the rows completed for scoring.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Σ = 1 over the columns that are used; 0 for one that is not. All 0 when there is no data at all.
    pub weights: [f64; Indicator::COUNT],
    /// Missing cells imputed.
    pub rows: Vec<[f64; Indicator::COUNT]>,
}

/// Weighs the indicators over the rows of one service.
///
/// `impute` gives the value of a missing cell (the median of the same GPU type) by row and column;
/// where it has none the column's own median stands in. A column that more than half of the rows
/// lack is not used. Rows without any value take no part and score by the caller's rule.
#[must_use]
pub fn evaluate(
    rows: &[Row],
    prior: &Prior,
    impute: impl Fn(usize, Indicator) -> Option<f64>,
) -> Evaluation {
    let present: Vec<usize> =
        (0..rows.len()).filter(|i| rows.get(*i).is_some_and(has_any)).collect();
    let mut complete = vec![[0.5; Indicator::COUNT]; rows.len()];
    let mut divergences = [0.0; Indicator::COUNT];
    let mut used = [false; Indicator::COUNT];

    for (j, indicator) in Indicator::ALL.into_iter().enumerate() {
        let cell = |i: usize| rows.get(i).and_then(|r| r.get(j).copied().flatten());
        let known: Vec<f64> = present.iter().filter_map(|i| cell(*i)).collect();
        if known.is_empty() || known.len() * 2 < present.len() {
            continue;
        }
        let fallback = crate::numbers::median(known.iter().copied()).unwrap_or(0.5);
        let column: Vec<f64> = present
            .iter()
            .map(|i| cell(*i).or_else(|| impute(*i, indicator)).unwrap_or(fallback))
            .map(|z| bounded(z, 0.0, 1.0))
            .collect();
        let d = divergence(&column);
        for (i, z) in present.iter().zip(&column) {
            if let Some(slot) = complete.get_mut(*i).and_then(|r| r.get_mut(j)) {
                *slot = *z;
            }
        }
        if let (Some(slot), Some(flag)) = (divergences.get_mut(j), used.get_mut(j)) {
            *slot = d;
            *flag = true;
        }
    }

    let weights = blend(&divergences, &used, prior, present.len());
    Evaluation { weights, rows: complete }
}

/// Weights over the used columns: grouped divergences, blended with the prior, within their bounds.
fn blend(
    divergences: &[f64; Indicator::COUNT],
    used: &[bool; Indicator::COUNT],
    prior: &Prior,
    rows: usize,
) -> [f64; Indicator::COUNT] {
    let mut out = [0.0; Indicator::COUNT];
    if !used.contains(&true) {
        return out;
    }
    let prior = normalised(
        prior
            .0
            .iter()
            .zip(used)
            .map(|(p, u)| if *u { bounded(*p, 0.0, 1e6) } else { 0.0 })
            .collect(),
    );
    // A prior that names none of the columns there are treats them alike.
    let prior = if prior.iter().sum::<f64>() > 0.0 {
        prior
    } else {
        normalised(used.iter().map(|u| f64::from(u8::from(*u))).collect())
    };
    let votes = normalised(grouped(divergences));
    let has_votes = votes.iter().sum::<f64>() > 0.0;
    let lambda = match (has_votes, rows < ROWS_MIN) {
        (false, _) => 0.0,
        (true, true) => BLEND_FEW_ROWS,
        (true, false) => BLEND,
    };
    let blended: Vec<f64> = votes
        .iter()
        .zip(&prior)
        .zip(used)
        .map(|((vote, prior), used)| {
            let weight = lambda * vote + (1.0 - lambda) * prior;
            match (*used, has_votes) {
                (false, _) => 0.0,
                (true, true) => bounded(weight, WEIGHT_MIN, WEIGHT_MAX),
                (true, false) => weight,
            }
        })
        .collect();
    for (slot, weight) in out.iter_mut().zip(normalised(blended)) {
        *slot = weight;
    }
    out
}

/// Each group's members share one vote, the mean of their divergences, in proportion to their own.
fn grouped(divergences: &[f64; Indicator::COUNT]) -> Vec<f64> {
    let members = |group| {
        Indicator::ALL
            .iter()
            .zip(divergences)
            .filter(move |(i, _)| i.group() == group)
            .map(|(_, d)| *d)
    };
    Indicator::ALL
        .iter()
        .zip(divergences)
        .map(|(indicator, d)| {
            let voting = members(indicator.group()).filter(|d| *d > 0.0).count().max(1);
            d / voting as f64
        })
        .collect()
}

/// Σ w·z.
#[must_use]
pub fn score(weights: &[f64; Indicator::COUNT], row: &[f64; Indicator::COUNT]) -> f64 {
    bounded(weights.iter().zip(row).map(|(w, z)| w * z).sum(), 0.0, 1.0)
}

pub(crate) fn has_any(row: &Row) -> bool {
    row.iter().any(Option::is_some)
}

fn normalised(values: Vec<f64>) -> Vec<f64> {
    let total: f64 = values.iter().sum();
    if !total.is_finite() || total <= 0.0 {
        return vec![0.0; values.len()];
    }
    values.into_iter().map(|v| v / total).collect()
}

#[cfg(test)]
mod tests;
