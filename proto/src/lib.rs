//! The wire of Tidegate, package `tidegate.v1`.
//!
//! Messages by default; feature `client` adds the report client, feature `server` both servers.
//! The code under `gen/` is generated from `tidegate/v1/*.proto` by `cargo xtask gen` and checked in,
//! so that nobody needs a protobuf compiler; `tests/fresh.rs` proves that it matches its source.

/// Messages and services of `tidegate.v1`.
#[allow(
    clippy::all,
    unused_qualifications,
    reason = "generated code, features decide which lint it hits"
)]
pub mod v1 {
    include!("gen/tidegate.v1.rs");
}

/// The proto sources, by file name below the `proto` folder, for tools that want to show or check them.
pub const SOURCES: [(&str, &str); 2] = [
    ("tidegate/v1/report.proto", include_str!("../tidegate/v1/report.proto")),
    ("tidegate/v1/fleet.proto", include_str!("../tidegate/v1/fleet.proto")),
];
