//! What a report says, in the reporter's own types. `None` is unknown, never zero.

use serde::Serialize;

/// Everything at one moment. Every group carries its own age.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    pub node: String,
    pub driver: Driver,
    pub gpus: Vec<Gpu>,
    pub workloads: Vec<WorkloadView>,
    pub host: Option<Host>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverStatus {
    /// Not asked yet.
    #[default]
    Unknown,
    Ok,
    Absent,
    Mismatch,
    Hung,
    Failed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Driver {
    pub status: DriverStatus,
    pub driver_version: String,
    pub nvml_version: String,
    pub cuda_version: Option<u32>,
    pub detail: String,
    pub gpus_expected: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuState {
    /// There, but it cannot be opened: nothing is known.
    Unknown,
    Ok,
    Lost,
    Hung,
    Slow,
    Missing,
}

impl GpuState {
    pub const ALL: [Self; 6] =
        [Self::Unknown, Self::Ok, Self::Lost, Self::Hung, Self::Slow, Self::Missing];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Ok => "ok",
            Self::Lost => "lost",
            Self::Hung => "hung",
            Self::Slow => "slow",
            Self::Missing => "missing",
        }
    }
}

impl DriverStatus {
    pub const ALL: [Self; 6] =
        [Self::Unknown, Self::Ok, Self::Absent, Self::Mismatch, Self::Hung, Self::Failed];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Ok => "ok",
            Self::Absent => "absent",
            Self::Mismatch => "mismatch",
            Self::Hung => "hung",
            Self::Failed => "failed",
        }
    }
}

/// Who a GPU is; kept when it can no longer say so itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    pub uuid: String,
    pub index: u32,
    pub name: String,
    pub pci_bus_id: String,
    pub architecture: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gpu {
    #[serde(flatten)]
    pub identity: Identity,
    pub state: GpuState,
    pub state_detail: String,
    pub utilization: Option<Aged<Utilization>>,
    pub memory: Option<Aged<Memory>>,
    pub thermal: Option<Aged<Thermal>>,
    pub power: Option<Aged<Power>>,
    pub clocks: Option<Aged<Clocks>>,
    pub ecc: Option<Aged<Ecc>>,
    pub pcie: Option<Aged<Pcie>>,
    pub processes: Option<Aged<Processes>>,
    pub mig: Option<Mig>,
    pub xids: Vec<Xid>,
    pub recovery_action: Option<u32>,
    pub unsupported: Vec<String>,
}

/// A group of figures and how long ago they were read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Aged<T> {
    pub age_ms: u64,
    #[serde(flatten)]
    pub value: T,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Utilization {
    pub sm_percent: Option<u32>,
    pub memory_percent: Option<u32>,
    pub encoder_percent: Option<u32>,
    pub decoder_percent: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    pub total_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    pub used_bytes: Option<u64>,
    pub reserved_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Thermal {
    pub temperature_c: Option<u32>,
    pub slowdown_c: Option<u32>,
    pub shutdown_c: Option<u32>,
    pub memory_temperature_c: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Power {
    pub draw_mw: Option<u32>,
    pub limit_mw: Option<u32>,
    pub energy_mj: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Clocks {
    pub sm_mhz: Option<u32>,
    pub sm_max_mhz: Option<u32>,
    pub memory_mhz: Option<u32>,
    pub memory_max_mhz: Option<u32>,
    pub event_reasons: Option<u64>,
    pub performance_state: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ecc {
    pub enabled: Option<bool>,
    pub volatile_corrected: Option<u64>,
    pub volatile_uncorrected: Option<u64>,
    pub aggregate_corrected: Option<u64>,
    pub aggregate_uncorrected: Option<u64>,
    pub retired_pages: Option<u32>,
    pub remapped_rows_corrected: Option<u32>,
    pub remapped_rows_uncorrected: Option<u32>,
    pub remap_pending: Option<bool>,
    pub remap_failure: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pcie {
    pub tx_bytes_per_second: Option<u64>,
    pub rx_bytes_per_second: Option<u64>,
    pub link_generation: Option<u32>,
    pub link_generation_max: Option<u32>,
    pub link_width: Option<u32>,
    pub link_width_max: Option<u32>,
    pub replay_count: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Processes {
    pub compute: Vec<Process>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    pub pid: u32,
    pub used_memory_bytes: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mig {
    pub enabled: bool,
    pub instances: Vec<MigInstance>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MigInstance {
    pub uuid: String,
    pub gpu_instance_id: Option<u32>,
    pub compute_instance_id: Option<u32>,
    pub memory_total_bytes: Option<u64>,
    pub memory_used_bytes: Option<u64>,
}

/// One event of its own: the same code twice is two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Xid {
    pub code: u32,
    pub age_ms: u64,
    pub event_id: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Host {
    pub age_ms: u64,
    pub cpu_use_bp: Option<u32>,
    pub memory_total_bytes: Option<u64>,
    pub memory_available_bytes: Option<u64>,
    pub network_rx_bytes_per_second: Option<u64>,
    pub network_tx_bytes_per_second: Option<u64>,
    pub load_1m: Option<f64>,
    pub cpu_pressure_bp: Option<u32>,
    pub memory_pressure_bp: Option<u32>,
    pub io_pressure_bp: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkloadView {
    pub endpoint: String,
    pub service: String,
    pub gpu_uuids: Vec<String>,
    pub namespace: String,
    pub pod: String,
    pub engine: Option<Engine>,
}

/// A model server's own figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Engine {
    pub age_ms: u64,
    pub kind: &'static str,
    pub running: Option<u32>,
    pub waiting: Option<u32>,
    pub kv_use_bp: Option<u32>,
    pub slots: Option<u32>,
    pub ttft_p50_ms: Option<u32>,
    pub ttft_p95_ms: Option<u32>,
    pub tokens_per_second: Option<f64>,
    pub finished_total: Option<u64>,
}
