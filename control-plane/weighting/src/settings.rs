//! What an operator may set; the defaults are the figures of the modules that use them.
use alloc::{string::String, vec::Vec};

use tidegate_policy::units::Span;

use crate::{entropy::Prior, xid::XidVerdict};

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Prior weights of the indicators.
    pub prior: Prior,
    /// Capacities by GPU name, looked at before the built-in table.
    pub capacities: Vec<TypeCapacity>,
    /// Verdicts by Xid code, looked at before the built-in table.
    pub xids: Vec<(u32, XidVerdict)>,
    /// Time to first token that counts as entirely bad.
    pub ttft_objective: Span,
}

/// Throughput of a GPU type relative to one A100.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeCapacity {
    /// Part of the driver's product name; case does not matter.
    pub name_contains: String,
    pub capacity: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            prior: Prior::default(),
            capacities: Vec::new(),
            xids: Vec::new(),
            ttft_objective: Span::secs(2),
        }
    }
}
