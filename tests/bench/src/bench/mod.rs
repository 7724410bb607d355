//! The benches, one a file.

pub mod filter;
pub mod pick;
pub mod tail;
