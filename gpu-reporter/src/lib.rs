//! The GPU reporter: one daemon per GPU node reads NVML, model servers and host, and reports them.
//!
//! A report's way: `sampler` (tiers) → `device` (one GPU's figures) → `nvml` (driver calls) → `board`
//! (what is known now) → `uplink` (latest wins) → `wire` (protobuf). `watchdog` looks at the driver threads
//! from outside; `events` waits for Xids; `engine` and `workload` add the model servers, `host` the node.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod board;
pub mod config;
pub mod device;
pub mod engine;
pub mod events;
pub mod host;
pub mod http;
pub mod metrics;
pub mod nvml;
pub mod once;
pub mod sample;
pub mod sampler;
pub mod shared;
pub mod uplink;
pub mod watch;
pub mod watchdog;
pub mod wire;
pub mod workload;
