//! From GPU reports to endpoint weights: report → freshness → health → weight → smooth → fleet snapshot.
//!
//! Pure: `now` is an argument, there is no input or output, the same steps give the same bytes, and
//! the order of endpoints, nodes and GPUs in the input changes nothing.
//!
//! ```text
//! input      what reports, discovery and proxies said
//! freshness  what of it still counts
//! health     gate 0..1000: hard verdicts, throttling, memory, queue (xid: event table; gate: reasons)
//! entropy    score 0..1 from indicators on physical ranges
//! capacity   what a GPU type, or this endpoint once seen saturated, can do
//! smooth     how fast gate and share may move; success  what the proxies counted
//! fleet      composes them: Weigher::step(now, &Inputs) -> FleetSnapshot
//! ```
#![no_std]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
#![forbid(unsafe_code)]
extern crate alloc;

mod bind;
pub mod capacity;
mod endpoint;
pub mod entropy;
pub mod explain;
pub mod fleet;
pub mod freshness;
pub mod gate;
mod health;
mod indicators;
pub mod input;
mod latch;
mod numbers;
mod score;
mod service;
pub mod settings;
mod smooth;
pub mod snapshot;
mod success;
#[cfg(test)]
mod testkit;
pub mod xid;

pub use explain::{Explanation, HoldReason, IndicatorFactor};
pub use fleet::Weigher;
pub use gate::{Clears, GateFactor, GateReason};
pub use input::Inputs;
pub use settings::{Settings, TypeCapacity};
pub use snapshot::{Alarm, EndpointSnapshot, FleetSnapshot, HardState, ServiceSnapshot};
