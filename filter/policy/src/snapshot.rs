//! The fleet as the control plane last described it.
//!
//! Input: full and partial updates. Output: the merged state with receive times. Order is judged by
//! epoch within one control-plane instance and by the receive time on this worker's clock, never by a
//! sender's clock. A full update replaces everything; a partial one changes what it lists. What it does
//! not list is as it was, but for its age: an endpoint is listed whenever there is new data on it, so
//! the data of one that is not listed has grown older. A control plane that has just started may say
//! "up" of what it has no report on yet; where the one before said "down", that stands for a while. An
//! update is taken whole or refused whole: [`Fleet::apply`] checks everything before it changes
//! anything, so a bad message leaves the last good state in force.

use alloc::{string::String, vec::Vec};

use crate::units::{BasisPoints, PerMille, Span, Weight};

mod fleet;

pub use fleet::{Endpoint, Fleet, Service};

/// Most services in the merged state.
pub const SERVICES_MAX: usize = 256;
/// Most endpoints of one service in the merged state.
pub const ENDPOINTS_MAX: usize = 5_000;
/// Longest name of a service, node or GPU type.
pub const NAME_BYTES_MAX: usize = 64;

/// One message of the control plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Counts up within `instance`.
    pub epoch: u64,
    /// Drawn at start of the control plane; epochs of different instances do not compare.
    pub instance: u64,
    /// Time between updates.
    pub period: Span,
    /// Proxies with a live stream.
    pub proxies_live: u32,
    pub extent: Extent,
    pub services: Vec<ServiceUpdate>,
    /// Services that are gone; with [`Extent::Full`] no list is needed.
    pub services_removed: Vec<String>,
}

/// How much of the state an update carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it: what is not listed is gone.
    Full,
    /// What changed: what is not listed is as it was.
    Changes,
}

/// One service in an update.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceUpdate {
    pub name: String,
    /// Requests a second of all proxies.
    pub arrival_rate: Option<f64>,
    pub endpoints: Vec<EndpointUpdate>,
    pub endpoints_removed: Vec<String>,
    /// Mean time of a request at an endpoint.
    pub mean_service: Option<Span>,
}

/// One endpoint in an update.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointUpdate {
    pub address: String,
    pub weight: Weight,
    /// Requests of all proxies, running and waiting.
    pub in_flight: Option<u32>,
    /// Requests that run together before queueing starts.
    pub slots: Option<u32>,
    pub gate: PerMille,
    /// Success rate seen by all proxies.
    pub success: Option<BasisPoints>,
    /// Age of the data when the update was sent.
    pub age: Option<Span>,
    pub hard: Hard,
    pub node: String,
    pub gpu_type: String,
    /// Capacity of the GPU type alone.
    pub type_weight: Weight,
    /// Free GPU memory as a share of the total.
    pub memory_free: Option<BasisPoints>,
    /// Time since the endpoint was first seen healthy (again); `None`: long ago.
    pub healthy_for: Option<Span>,
}

/// What an endpoint may do at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hard {
    Up,
    /// Finishes what runs, takes nothing new.
    Draining,
    /// Lost, hung or fatally broken.
    Down,
}

/// Why an update was refused; the state is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateRefused {
    /// Changes of an instance whose full state never came.
    NoBase {
        instance: u64,
    },
    /// Not newer than what is in force.
    Old {
        epoch: u64,
        have: u64,
    },
    TooManyServices {
        limit: usize,
    },
    TooManyEndpoints {
        limit: usize,
    },
    /// A name is empty or too long.
    Name {
        limit_bytes: usize,
    },
    /// An endpoint is not `ip:port`.
    Address,
    /// A service or endpoint stands twice in one update.
    Twice,
}

impl UpdateRefused {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoBase { .. } => "no_base",
            Self::Old { .. } => "old",
            Self::TooManyServices { .. } => "too_many_services",
            Self::TooManyEndpoints { .. } => "too_many_endpoints",
            Self::Name { .. } => "name",
            Self::Address => "address",
            Self::Twice => "twice",
        }
    }
}

impl core::fmt::Display for UpdateRefused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoBase { instance } => {
                write!(f, "changes without a full state of instance {instance:016x}")
            }
            Self::Old { epoch, have } => write!(f, "epoch {epoch} is not after {have}"),
            Self::TooManyServices { limit } => write!(f, "more than {limit} services"),
            Self::TooManyEndpoints { limit } => write!(f, "more than {limit} endpoints a service"),
            Self::Name { limit_bytes } => write!(f, "a name is outside 1..={limit_bytes} bytes"),
            Self::Address => f.write_str("an endpoint is not an address ip:port"),
            Self::Twice => f.write_str("a service or endpoint stands twice"),
        }
    }
}

impl core::error::Error for UpdateRefused {}

#[cfg(test)]
mod tests;
