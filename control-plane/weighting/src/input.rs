//! What one weighting step is told: endpoints, node reports, what the proxies counted.
//!
//! This is the domain mirror of the report on the wire, cut down to what a decision reads. `None`
//! is "nobody told us" and never the same as zero: a GPU that does not report its utilisation is not
//! idle. Times of receipt are the receiver's; what a reporter adds is only the age a value had when
//! it was sent, so skewed clocks on a node change nothing.
//!
//! Counters (`*_total`) count up since the control plane started. The weigher takes the differences
//! itself, so a step that runs twice over the same input counts nothing twice.
use alloc::{string::String, vec::Vec};

use tidegate_policy::units::{Span, Time};

/// Everything one step reads. Order within the lists does not matter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inputs {
    /// From discovery: the only source of endpoints. Reports bind GPUs to them, never create them.
    pub endpoints: Vec<EndpointDefinition>,
    /// The newest report of each reporter; a node may have several, each for some of its GPUs. Of two
    /// that list one GPU the later received wins.
    pub nodes: Vec<NodeReport>,
    /// Sums over all live proxies, one entry per endpoint.
    pub feedback: Vec<EndpointFeedback>,
    /// Sums over all live proxies, one entry per service.
    pub services: Vec<ServiceFeedback>,
}

/// One endpoint as discovery knows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndpointDefinition {
    pub service: String,
    /// `ip:port`.
    pub address: String,
    /// Node that it runs on; without it only a workload in a report can bind GPUs.
    pub node: Option<String>,
    /// GPUs on that node; empty leaves the binding to the reports.
    pub gpus: Vec<GpuRef>,
    /// Throughput relative to one A100 that the operator states; replaces the type table and learning.
    pub capacity: Option<f64>,
    /// The operator wants no new requests here.
    pub is_draining: bool,
}

/// Names one GPU of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuRef {
    Index(u32),
    Uuid(String),
}

/// The newest report of one reporter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeReport {
    pub node: String,
    /// Drawn when the reporter process starts; a new one is a new reporter.
    pub boot_id: String,
    /// Receiver's clock.
    pub received: Time,
    /// The period at which this reporter sends.
    pub interval: Span,
    pub driver: DriverStatus,
    pub gpus: Vec<GpuSample>,
    pub workloads: Vec<Workload>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriverStatus {
    #[default]
    Unknown,
    Ok,
    /// No library or no driver yet.
    Absent,
    /// The library does not match the loaded kernel module.
    Mismatch,
    /// Calls do not return.
    Hung,
    /// The driver answers with an error.
    Failed,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuState {
    #[default]
    Unknown,
    Ok,
    /// Fallen off the bus, or needs a reset.
    Lost,
    /// A call on this GPU does not return.
    Hung,
    /// A call takes far longer than it should.
    Slow,
    /// Was listed before and is not now.
    Missing,
}

/// A group of values that were sampled together, with their age when the report was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Aged<T> {
    pub age: Span,
    pub values: T,
}

/// One GPU of a report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuSample {
    pub uuid: String,
    pub index: u32,
    /// The driver's product name, for example `NVIDIA A100-SXM4-80GB`.
    pub name: String,
    pub state: GpuState,
    pub utilization: Option<Aged<Utilization>>,
    pub memory: Option<Aged<Memory>>,
    pub thermal: Option<Aged<Thermal>>,
    pub power: Option<Aged<Power>>,
    pub clocks: Option<Aged<Clocks>>,
    pub ecc: Option<Aged<Ecc>>,
    pub pcie: Option<Aged<Pcie>>,
    pub xids: Vec<XidEvent>,
    /// What the driver itself asks for (NVML field 230): 0 nothing; absent where unsupported.
    pub recovery_action: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Utilization {
    pub sm_percent: Option<u32>,
    pub memory_percent: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Memory {
    pub total_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Thermal {
    pub temperature_c: Option<u32>,
    pub slowdown_c: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Power {
    pub draw_mw: Option<u32>,
    pub limit_mw: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Clocks {
    pub sm_mhz: Option<u32>,
    pub sm_max_mhz: Option<u32>,
    /// The driver's clock event (throttle) bits.
    pub event_reasons: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ecc {
    pub volatile_uncorrected: Option<u64>,
    pub is_remap_pending: Option<bool>,
    pub is_remap_failed: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pcie {
    pub tx_bytes_per_second: Option<u64>,
    pub rx_bytes_per_second: Option<u64>,
    pub link_generation: Option<u32>,
    pub link_width: Option<u32>,
    pub link_width_max: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XidEvent {
    pub code: u32,
    /// When the report was sent.
    pub age: Span,
    /// Counts up per boot of the reporter: the same code twice is two events.
    pub event_id: u64,
}

/// A model server that a report found: binds GPUs and engine metrics to an endpoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Workload {
    /// `ip:port`.
    pub endpoint: String,
    /// Empty matches the endpoint in any service.
    pub service: String,
    pub gpu_uuids: Vec<String>,
    pub engine: Option<Aged<Engine>>,
}

/// A model server's own metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Engine {
    pub kind: EngineKind,
    pub running: Option<u32>,
    pub waiting: Option<u32>,
    pub kv_use_bp: Option<u32>,
    /// Requests that can run together before queueing starts.
    pub slots: Option<u32>,
    pub ttft_p95_ms: Option<u32>,
    pub tokens_per_second: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineKind {
    #[default]
    Unknown,
    Vllm,
    Sglang,
    Tgi,
    Triton,
    TrtLlm,
}

impl EngineKind {
    /// Takes nearly all GPU memory at start, so little free memory means nothing.
    #[must_use]
    pub const fn preallocates(self) -> bool {
        match self {
            Self::Vllm | Self::Sglang | Self::Tgi | Self::TrtLlm => true,
            Self::Unknown | Self::Triton => false,
        }
    }

    /// The name on the wire; anything else is `Unknown`.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        match name {
            "vllm" => Self::Vllm,
            "sglang" => Self::Sglang,
            "tgi" => Self::Tgi,
            "triton" => Self::Triton,
            "trtllm" => Self::TrtLlm,
            _ => Self::Unknown,
        }
    }
}

/// What all live proxies together counted at one endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointFeedback {
    pub service: String,
    pub address: String,
    /// Right now; absent when no proxy reports.
    pub in_flight: Option<u32>,
    pub ok_total: u64,
    pub busy_total: u64,
    pub broken_total: u64,
    pub cancelled_total: u64,
}

/// What all live proxies together counted for one service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceFeedback {
    pub service: String,
    pub arrivals_total: u64,
    /// Proxies with a live stream that use this service.
    pub proxies_live: u32,
}
