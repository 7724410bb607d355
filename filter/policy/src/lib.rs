//! Every decision of the data path, pure: time and chance are arguments.
//!
//! The glue in `tidegate-filter` reads a request into [`classify::RequestFacts`], asks the
//! [`gate::Gate`], and performs the [`decision::Decision`]. Nothing here reads a clock, draws entropy,
//! allocates without a limit or panics, so the same code runs in Envoy, in the control plane's checks,
//! in benches and under a fuzzer.
//!
//! | question | module |
//! |---|---|
//! | which service is it? | [`classify`], [`config`] |
//! | what is known of the fleet, and how old is it? | [`snapshot`], [`ladder`] |
//! | which endpoint? | [`pick`], with [`success`] and [`ramp`] as health |
//! | what did the answer say? | [`outcome`] |
//! | what does this Envoy itself count? | [`local`] |
//! | who leads, where do workers write, when is the stream opened? | [`lease`], [`slots`], [`link`] |
//!
//! A decision from configuration to endpoint list:
//!
//! ```
//! use std::rc::Rc;
//!
//! use tidegate_policy::{
//!     chance::Chance,
//!     classify::RequestFacts,
//!     config,
//!     decision::Decision,
//!     gate::{Gate, ServedFacts},
//!     outcome::{Ending, Outcome, Seen},
//!     snapshot::{EndpointUpdate, Extent, Fleet, Hard, ServiceUpdate, Update},
//!     units::{PerMille, Span, Time, Weight},
//! };
//!
//! let json = r#"{"version": 1, "services": [{"name": "llm", "match": {"clusters": ["llm"]}}]}"#;
//! let config = config::parse(&serde_json::from_str(json)?).expect("a good configuration");
//! let mut gate = Gate::new(Time::ms(0), 1, Rc::new(config));
//!
//! // The control plane knows two endpoints; the second one has an empty queue.
//! let endpoint = |address: &str, in_flight| EndpointUpdate {
//!     address: address.into(),
//!     weight: Weight::clamped(100),
//!     in_flight: Some(in_flight),
//!     slots: Some(8),
//!     gate: PerMille::FULL,
//!     success: None,
//!     age: Some(Span::ms(50)),
//!     hard: Hard::Up,
//!     node: String::new(),
//!     gpu_type: "a100".into(),
//!     type_weight: Weight::clamped(100),
//!     memory_free: None,
//!     healthy_for: None,
//! };
//! let mut fleet = Fleet::new();
//! fleet.apply(Time::ms(1_000), Update {
//!     epoch: 1,
//!     instance: 7,
//!     period: Span::ms(500),
//!     proxies_live: 1,
//!     extent: Extent::Full,
//!     services: vec![ServiceUpdate {
//!         name: "llm".into(),
//!         arrival_rate: Some(10.0),
//!         endpoints: vec![endpoint("10.0.0.1:8000", 5), endpoint("10.0.0.2:8000", 0)],
//!         endpoints_removed: vec![],
//!         mean_service: Some(Span::secs(2)),
//!     }],
//!     services_removed: vec![],
//! })?;
//! gate.on_snapshot(Time::ms(1_000), &fleet);
//!
//! let facts = RequestFacts { cluster: Some(b"llm"), ..RequestFacts::default() };
//! let decision = gate.on_request(Time::ms(1_100), &mut Chance::seeded(3), &facts);
//! let Decision::Steer { ticket, list, retries, .. } = decision else { panic!("{decision:?}") };
//! assert_eq!((list.as_str(), retries), ("10.0.0.2:8000,10.0.0.1:8000", 2));
//!
//! // The first try failed, the second one answered.
//! let served = ServedFacts { served: Some("10.0.0.1:8000"), attempts: 2 };
//! gate.on_response_headers(Time::ms(1_300), &ticket, &served);
//! let seen = Seen { status: Some(200), ending: Ending::Complete, ..Seen::default() };
//! assert_eq!(gate.on_end(Time::ms(2_000), ticket, &served, &seen), Outcome::Ok);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
pub mod lease;
pub mod link;
pub mod local;
pub mod outcome;
pub mod pick;
pub mod ramp;
pub mod slots;
pub mod snapshot;
pub mod success;
pub mod units;
