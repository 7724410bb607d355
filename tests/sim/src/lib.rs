//! A discrete-event simulator over the crates that ship.
//!
//! What decides is not modelled but run: one [`tidegate_policy::gate::Gate`] per proxy, and the weigher of
//! the control plane. What is modelled is the world around them, in one file each:
//!
//! ```text
//! arrivals   when requests come, how much work they are, through which proxy; drawn once, shared by all
//! server     a GPU: slots that run in parallel, with or without a batch that slows its members, then a queue
//! ideal      one central queue over the same servers, the yardstick of every ratio
//! plane      the control plane: what it is told each period, and the update that it sends
//! sidecar    a proxy around a Gate: its clock, its ticks, the updates that reach it
//! baseline   balancers that know less: round robin, least request on own counts, Envoy's weighted one
//! world      puts them together, event by event; faults come and go here
//! grid       the runs of a scenario and their ratios; table prints them
//! ```
//!
//! Ratios rank policies, they promise nothing: there is no network, no prefix cache and no token, arrivals
//! are stationary, and every GPU serves one model. Nothing reads a clock or the environment, logarithms come
//! from `libm`, and events of one time keep the order of their making, so a seed gives the same bytes on
//! every machine.

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod baseline;
pub mod fault;
pub mod grid;
pub mod ideal;
pub mod plane;
pub mod quantile;
pub mod scenario;
pub mod server;
pub mod sidecar;
pub mod table;
pub mod world;

/// Simulated nanoseconds since the start.
pub type Nanos = u64;

/// Nanoseconds in a second.
pub const SECOND: f64 = 1e9;
