//! Strict reading of configuration.
//!
//! A serde derive stops at the first error and names no allowed range. Here one function per
//! configuration type asks a [`Node`] for its fields; the same function, run by [`describe`], yields
//! the [`Shape`] from which JSON schema and reference tables are generated. So parser, schema and
//! documentation cannot disagree.
//!
//! Inputs: any serde format, read into a [`Value`]. Outputs: the type, or all errors at once. Reading
//! is total: no input panics, and depth and size are bounded by the format's parser and the caller.

#![no_std]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
#![forbid(unsafe_code)]

extern crate alloc;

mod error;
mod node;
mod shape;
mod value;

pub use error::{ConfigError, Problem};
pub use node::{Need, Node, describe, read};
pub use shape::{Field, Kind, Shape};
pub use value::Value;
