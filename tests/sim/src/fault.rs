//! What goes wrong, where and when.

use crate::{Nanos, SECOND};

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    pub kind: FaultKind,
    /// Index of the endpoint; `None`: all of them.
    pub endpoint: Option<usize>,
    pub from_s: f64,
    pub to_s: f64,
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// Answers every new request with an error within milliseconds.
    FailsFast,
    /// Serves, but nothing is reported of it.
    Silent,
    /// Loses what it has and refuses what comes; the reports say so.
    Down,
    /// The control plane is gone: no update reaches any proxy.
    NoUpdates,
}

impl FaultKind {
    pub const ALL: [Self; 4] = [Self::FailsFast, Self::Silent, Self::Down, Self::NoUpdates];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FailsFast => "fails_fast",
            Self::Silent => "silent",
            Self::Down => "down",
            Self::NoUpdates => "no_updates",
        }
    }
}

impl Fault {
    #[must_use]
    pub fn from(&self) -> Nanos {
        (self.from_s * SECOND) as Nanos
    }

    #[must_use]
    pub fn to(&self) -> Nanos {
        (self.to_s * SECOND) as Nanos
    }

    #[must_use]
    pub fn holds(&self, now: Nanos) -> bool {
        (self.from()..self.to()).contains(&now)
    }
}

/// Whether a fault of `kind` holds at the endpoint.
#[must_use]
pub fn holds(faults: &[Fault], kind: FaultKind, endpoint: usize, now: Nanos) -> bool {
    let is_there = |at: Option<usize>| at.is_none_or(|at| at == endpoint);
    faults.iter().any(|f| f.kind == kind && is_there(f.endpoint) && f.holds(now))
}
