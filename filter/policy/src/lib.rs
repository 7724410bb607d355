//! Every decision of the data path, pure: time and chance are arguments.
#![no_std]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod chance;
pub mod classify;
pub mod config;
pub mod decision;
pub mod gate;
pub mod ladder;
pub mod local;
pub mod outcome;
pub mod pick;
pub mod ramp;
pub mod snapshot;
pub mod success;
pub mod units;
