//! Why an endpoint has the weight and the gate it has, every factor as a number with a name.
use alloc::{format, string::String, vec::Vec};

use crate::{entropy::Indicator, gate::GateFactor};

/// The arithmetic behind one endpoint's weight and gate.
///
/// `gate = min(Π gate factors, last gate + 0.1/s)`, `score = Σ weight·z` over the indicators, and
/// `weight ∝ capacity · (0.5 + score)` after smoothing and the limits on change of share.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Explanation {
    /// All gate factors below 1, and those that hold the gate for lack of data.
    pub gates: Vec<GateFactor>,
    /// Product of the factors, before the limit on rising.
    pub gate_raw: f64,
    pub indicators: Vec<IndicatorFactor>,
    /// Σ weight·z of this step, and the smoothed value that is used.
    pub score_raw: f64,
    pub score: f64,
    /// Capacity of the GPU type (or the operator's figure), relative to one A100.
    pub type_capacity: f64,
    /// What the endpoint has shown under saturation, when it has been saturated.
    pub learned_capacity: Option<f64>,
    /// 0..1: how far learning has replaced the type's figure.
    pub learned_confidence: f64,
    /// The capacity that is used, smoothed.
    pub capacity: f64,
    /// Part of the service's weight that was aimed at, and the part it has.
    pub share_target: f64,
    pub share: f64,
    /// Why the last good value is published in place of this step's.
    pub held: Option<HoldReason>,
}

/// One indicator of the entropy weight method at one endpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndicatorFactor {
    pub indicator: Indicator,
    /// In the indicator's own unit; absent when it was imputed.
    pub measured: Option<f64>,
    /// Normalised on the physical range, 1 is best.
    pub z: f64,
    /// The indicator's weight in this service.
    pub weight: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldReason {
    /// Less than half of the capacity would be eligible.
    LowCapacity,
    /// Many nodes are silent together.
    MassSilence,
    /// A computed value was not a number in its range.
    Invariant,
}

impl HoldReason {
    pub const ALL: [Self; 3] = [Self::LowCapacity, Self::MassSilence, Self::Invariant];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LowCapacity => "low_capacity",
            Self::MassSilence => "mass_silence",
            Self::Invariant => "invariant",
        }
    }
}

impl Explanation {
    /// Every factor as a named number, in the order of the calculation.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, f64)> {
        let mut rows = Vec::new();
        for gate in &self.gates {
            rows.push((gate.label(), gate.value));
        }
        rows.push(("gate.product".into(), self.gate_raw));
        for factor in &self.indicators {
            let name = factor.indicator.as_str();
            if let Some(measured) = factor.measured {
                rows.push((format!("indicator.{name}.measured"), measured));
            }
            rows.push((format!("indicator.{name}.z"), factor.z));
            rows.push((format!("indicator.{name}.weight"), factor.weight));
        }
        rows.push(("score.now".into(), self.score_raw));
        rows.push(("score.smoothed".into(), self.score));
        rows.push(("capacity.type".into(), self.type_capacity));
        if let Some(learned) = self.learned_capacity {
            rows.push(("capacity.learned".into(), learned));
            rows.push(("capacity.learned_confidence".into(), self.learned_confidence));
        }
        rows.push(("capacity.used".into(), self.capacity));
        rows.push(("share.target".into(), self.share_target));
        rows.push(("share.used".into(), self.share));
        rows
    }
}
