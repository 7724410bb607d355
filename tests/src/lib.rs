//! Starts real processes for end-to-end tests, the demo and the benches: Envoy with the shipped
//! configuration, the control plane, reporters over a simulated driver, model servers.
//!
//! [`Rig`] puts them together on free ports; each part can also be started alone. A part ends with
//! its handle, and its output lies in `target/e2e/<name>/`.

pub mod bootstrap;
pub mod client;
pub mod config;
pub mod control_plane;
pub mod envoy;
pub mod eventually;
pub mod fake_control_plane;
pub mod load;
pub mod models;
pub mod ports;
pub mod process;
pub mod reporter;
pub mod rig;
pub mod scenario;
pub mod skip;
pub mod stats;

pub use bootstrap::Bootstrap;
pub use client::{Client, Reply};
pub use config::Tools;
pub use control_plane::{ControlPlane, Entry};
pub use envoy::Envoy;
pub use eventually::{eventually, until};
pub use fake_control_plane::FakeControlPlane;
pub use load::{Load, Outcome, Summary};
pub use models::{Fault, Ledger, Models};
pub use reporter::Reporter;
pub use rig::{GpuSpec, Rig};
pub use scenario::Scenario;
