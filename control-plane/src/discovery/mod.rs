//! Which services exist, and which endpoints each has.
//!
//! Endpoints come from here only: a report adds what it knows about an endpoint, it never makes one.

pub mod file;

use serde::{Deserialize, Serialize};

/// Everything that discovery knows, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directory {
    pub services: Vec<ServiceEntry>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ServiceEntry {
    pub name: String,
    pub endpoints: Vec<EndpointEntry>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointEntry {
    /// `ip:port`, as Envoy knows the endpoint.
    pub address: String,
    pub node: Option<String>,
    /// Index or UUID of the GPUs on that node.
    pub gpus: Vec<String>,
    /// Throughput relative to one A100, where the operator states it.
    pub capacity: Option<f64>,
    pub draining: bool,
}

impl Directory {
    #[must_use]
    pub fn endpoint_count(&self) -> usize {
        self.services.iter().map(|s| s.endpoints.len()).sum()
    }
}

/// How discovery stands, for status and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryStatus {
    pub source: String,
    /// Whether the directory in force is the newest one.
    pub current: bool,
    /// Why the newest one is not in force.
    pub errors: Vec<String>,
    pub services: usize,
    pub endpoints: usize,
    pub loads: u64,
    pub refusals: u64,
}
