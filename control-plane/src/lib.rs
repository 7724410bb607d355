//! The control plane: takes reports from GPU nodes, computes weights, pushes them to every proxy.
//!
//! ```text
//! reporters ──ReportService──▶ ingest ─▶ store ─┐
//! discovery file ─────────────▶ discovery ──────┼─▶ weighting ─▶ publish ──FleetService──▶ proxies
//! proxies ──feedback─────────▶ fleet ─▶ proxies ┘                    └─▶ admin: API, metrics, health
//! ```
//! Ages are the receiver's, on a monotonic clock. Every map, queue and rate has a limit in `config`.
//! Requests never wait for this process: when it is gone, the filters go on with what they know.
//!
//! Files: `core` is what all parts share, `server` puts them together, `wire` alone knows both the
//! messages and the domain, `cli` is the command line.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
#![forbid(unsafe_code)]

pub mod admin;
pub mod bucket;
mod changes;
pub mod check;
pub mod cli;
pub mod config;
pub mod connection;
pub mod core;
pub mod discovery;
pub mod events;
pub mod fleet;
pub mod ingest;
pub mod metrics;
pub mod proxies;
pub mod publish;
pub mod publisher;
pub mod server;
pub(crate) mod settings;
pub mod store;
pub mod text;
pub mod wire;

#[cfg(test)]
mod testing;

use std::time::Duration;

/// The span, give or take a fifth, so that what started together does not end together.
#[must_use]
pub fn spread(span: Duration) -> Duration {
    span.mul_f64(rand::random_range(0.8..=1.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_stays_within_a_fifth_and_differs() {
        let drawn: Vec<Duration> = (0..64).map(|_| spread(Duration::from_secs(100))).collect();
        assert!(drawn.iter().all(|d| (80..=120).contains(&d.as_secs())), "{drawn:?}");
        assert!(drawn.iter().any(|d| *d != drawn[0]));
    }
}
