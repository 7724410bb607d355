//! Configuration of the GPU reporter, apart from the reporter so that others can check it.
//!
//! Two files, each read by one function: the reporter's own settings ([`ReporterConfig`]) and the
//! list of model servers on the node ([`Workloads`]). Inputs: a parsed YAML or JSON tree. Outputs:
//! the type, or every error at once with path, value and range.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
#![forbid(unsafe_code)]

mod reporter;
mod workloads;

pub use reporter::{Address, ControlPlaneUrl, ReporterConfig, parse, shape};
pub use workloads::{
    EngineKind, GpuName, MetricsUrl, Workload, Workloads, parse_workloads, workloads_shape,
};

/// Most GPUs that one node may have.
pub const GPUS_MAX: usize = 64;
