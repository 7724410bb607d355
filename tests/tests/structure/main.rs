//! The repository looks at itself: who depends on whom, what stands where, and whether every file that
//! is shipped as an example or a manifest would be accepted by the one that reads it.

mod agreement;
mod arrows;
mod examples;
mod generated;
mod manifests;
mod patches;
mod support;
mod tidy;
