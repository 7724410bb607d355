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

/// Whether a character may stand in the name of a node, service, pod or GPU: safe in a label, a log line
/// and a URL, and what the control plane takes.
#[must_use]
pub const fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '|')
}

/// Longest name of a node, service, pod or GPU, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 64;

/// Notes an error at `field` if `name` has other characters.
pub(crate) fn check_name(node: &mut tidegate_strict::Node<'_>, field: &str, name: &str) {
    if !name.chars().all(is_name_char) {
        node.rule_broken(field, format!("{name:?} has other than letters, digits and . _ - / : |"));
    }
}
