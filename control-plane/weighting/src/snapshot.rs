//! What one weighting step says: the fleet as the proxies shall see it, and why.
use alloc::{string::String, vec::Vec};

use tidegate_policy::units::{BasisPoints, PerMille, Span, Weight};

use crate::explain::Explanation;

/// The whole fleet after one step; services sorted by name, endpoints by address.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FleetSnapshot {
    pub services: Vec<ServiceSnapshot>,
    /// What a person should look at, sorted.
    pub alarms: Vec<Alarm>,
}

impl FleetSnapshot {
    #[must_use]
    pub fn service(&self, name: &str) -> Option<&ServiceSnapshot> {
        self.services.iter().find(|s| s.name == name)
    }

    #[must_use]
    pub fn endpoint(&self, service: &str, address: &str) -> Option<&EndpointSnapshot> {
        self.service(service)?.endpoint(address)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceSnapshot {
    pub name: String,
    /// Requests a second of all proxies; absent until proxies have reported twice.
    pub arrival_rate: Option<f64>,
    /// Mean time a request spends at an endpoint, by Little's law.
    pub mean_service: Option<Span>,
    pub proxies_live: u32,
    pub endpoints: Vec<EndpointSnapshot>,
}

impl ServiceSnapshot {
    #[must_use]
    pub fn endpoint(&self, address: &str) -> Option<&EndpointSnapshot> {
        self.endpoints.iter().find(|e| e.address == address)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct EndpointSnapshot {
    pub address: String,
    pub node: Option<String>,
    /// Product name of the first GPU, when a report told it.
    pub gpu_type: Option<String>,
    /// Saturated throughput relative to the others of the service.
    pub weight: Weight,
    /// The same by GPU type alone: what the weight falls back to when data is old.
    pub type_weight: Weight,
    /// Share of the usual traffic that this endpoint's health allows; 0 takes none.
    pub gate: PerMille,
    pub hard: HardState,
    /// Running and waiting requests of all proxies together; absent is unknown, not idle.
    pub in_flight: Option<u32>,
    /// Requests that run together before queueing starts.
    pub slots: Option<u32>,
    /// Success rate seen by the whole fleet; absent before the first counted outcome.
    pub success: Option<BasisPoints>,
    /// Age of the newest data behind this endpoint; absent when there is none.
    pub age: Option<Span>,
    /// Free GPU memory as part of the total; the least of its GPUs.
    pub memory_free: Option<BasisPoints>,
    /// Time since the endpoint was first seen up (again); absent when it was up from the start.
    pub healthy_for: Option<Span>,
    pub explanation: Explanation,
}

/// Whether an endpoint may take requests at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HardState {
    #[default]
    Up,
    /// Finishes what runs, takes nothing new.
    Draining,
    /// Lost, hung or fatally broken.
    Down,
}

impl HardState {
    pub const ALL: [Self; 3] = [Self::Up, Self::Draining, Self::Down];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Draining => "draining",
            Self::Down => "down",
        }
    }
}

/// Something that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// Less than half of a service's capacity may take requests; soft verdicts are held at the last good ones.
    LowCapacity { service: String },
    /// So many nodes fell silent together that the fault is likely on our side; weights are held.
    MassSilence { service: String },
    /// A GPU of this node fell off the bus: the node needs a reboot, its other GPUs are suspect.
    NodeSuspect { node: String },
    /// A computed value broke an invariant; the last good one is published.
    Invariant { service: String },
}

impl Alarm {
    /// The kind, for a metric label.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::LowCapacity { .. } => "low_capacity",
            Self::MassSilence { .. } => "mass_silence",
            Self::NodeSuspect { .. } => "node_suspect",
            Self::Invariant { .. } => "invariant",
        }
    }
}
