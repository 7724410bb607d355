//! The demo and the benches: real processes side by side, each figure a ratio within one run.
//!
//! What is pure (`arrivals`, `ideal`, `quantile`, `form`) knows nothing of what is measured; the benches put the parts
//! together.

pub mod arrivals;
pub mod bench;
pub mod closed;
pub mod cpu;
pub mod demo;
pub mod ext_proc;
pub mod form;
pub mod ideal;
pub mod open;
pub mod plain;
pub mod quantile;
pub mod stand;
