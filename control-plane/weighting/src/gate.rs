//! The names and numbers of the health gate: every factor is a value with its reason.
use alloc::{format, string::String};

use tidegate_policy::units::Time;

/// Why a gate factor is what it is, in the order in which they outrank one another: what the driver
/// asks for, what its calls say, what events say, what counters and sensors say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GateReason {
    /// The driver asks for a reset or reboot (NVML field 230).
    RecoveryAction,
    /// The driver asks to drain.
    RecoveryDrain,
    /// The driver says that the GPU is lost or needs a reset.
    GpuLost,
    /// A call on the GPU does not return.
    GpuHung,
    /// The GPU was listed before and is not now.
    GpuMissing,
    /// Came back from one of the above, but has not yet been well for long enough.
    GpuReturning,
    /// Calls on the GPU take far too long.
    GpuSlow,
    /// The node reports, but this GPU is not in the report: unknown, not idle.
    GpuUnreported,
    /// Driver calls do not return: unknown, not idle.
    DriverHung,
    /// No driver, a mismatched one, or one that fails: unknown, not idle.
    DriverUnavailable,
    /// An Xid that only a reset clears.
    XidFatal,
    /// An NVLink Xid.
    XidLink,
    /// An Xid that lowers the gate for a while.
    XidDegraded,
    /// Application Xids too often.
    XidRepeated,
    /// Uncorrectable memory errors were counted while we watched.
    EccUncorrected,
    RemapFailed,
    RemapPending,
    HwSlowdown,
    SwThermal,
    PowerCap,
    TemperatureMargin,
    /// Nearly no free memory on a server that does not take it all at start.
    OutOfMemory,
    PcieWidth,
    KvFull,
    QueueLong,
    /// The node has been silent.
    Silence,
    /// Health data is late: the gate may fall but not rise.
    HeldForData,
    /// The operator drains the endpoint.
    Drain,
}

impl GateReason {
    pub const ALL: [Self; 28] = [
        Self::RecoveryAction,
        Self::RecoveryDrain,
        Self::GpuLost,
        Self::GpuHung,
        Self::GpuMissing,
        Self::GpuReturning,
        Self::GpuSlow,
        Self::GpuUnreported,
        Self::DriverHung,
        Self::DriverUnavailable,
        Self::XidFatal,
        Self::XidLink,
        Self::XidDegraded,
        Self::XidRepeated,
        Self::EccUncorrected,
        Self::RemapFailed,
        Self::RemapPending,
        Self::HwSlowdown,
        Self::SwThermal,
        Self::PowerCap,
        Self::TemperatureMargin,
        Self::OutOfMemory,
        Self::PcieWidth,
        Self::KvFull,
        Self::QueueLong,
        Self::Silence,
        Self::HeldForData,
        Self::Drain,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GpuLost => "gpu_lost",
            Self::GpuHung => "gpu_hung",
            Self::GpuMissing => "gpu_missing",
            Self::GpuReturning => "gpu_returning",
            Self::GpuSlow => "gpu_slow",
            Self::GpuUnreported => "gpu_unreported",
            Self::DriverHung => "driver_hung",
            Self::DriverUnavailable => "driver_unavailable",
            Self::XidFatal => "xid_fatal",
            Self::XidLink => "xid_link",
            Self::XidDegraded => "xid_degraded",
            Self::XidRepeated => "xid_repeated",
            Self::RecoveryAction => "recovery_action",
            Self::RecoveryDrain => "recovery_drain",
            Self::EccUncorrected => "ecc_uncorrected",
            Self::RemapFailed => "remap_failed",
            Self::RemapPending => "remap_pending",
            Self::HwSlowdown => "hw_slowdown",
            Self::SwThermal => "sw_thermal",
            Self::PowerCap => "power_cap",
            Self::TemperatureMargin => "temperature_margin",
            Self::OutOfMemory => "out_of_memory",
            Self::PcieWidth => "pcie_width",
            Self::KvFull => "kv_full",
            Self::QueueLong => "queue_long",
            Self::Silence => "silence",
            Self::HeldForData => "held_for_data",
            Self::Drain => "drain",
        }
    }
}

/// What takes a verdict away again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Clears {
    /// The measured condition ends.
    WithCondition,
    /// The GPU is seen to have been reset, or an operator acknowledges it.
    WithReset,
    /// Time passes.
    At(Time),
}

/// One factor of a gate.
#[derive(Debug, Clone, PartialEq)]
pub struct GateFactor {
    pub reason: GateReason,
    /// 0..=1, multiplied into the gate.
    pub value: f64,
    /// UUID of the GPU; absent where the endpoint as a whole is meant.
    pub gpu: Option<String>,
    /// What was seen: an Xid code, a temperature, a ratio.
    pub measured: Option<f64>,
    /// Since when a latched verdict holds.
    pub since: Option<Time>,
    pub clears: Clears,
}

impl GateFactor {
    /// A factor that ends with what was measured.
    #[must_use]
    pub const fn measured(reason: GateReason, value: f64, measured: Option<f64>) -> Self {
        Self { reason, value, gpu: None, measured, since: None, clears: Clears::WithCondition }
    }

    /// `gate.GPU.reason`, or `gate.reason` for the endpoint as a whole.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.gpu {
            Some(gpu) => format!("gate.{gpu}.{}", self.reason.as_str()),
            None => format!("gate.{}", self.reason.as_str()),
        }
    }
}
