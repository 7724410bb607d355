//! The shipped binary over the fake driver: real process, real library, real stream.

mod faults;
mod once;
mod reporting;
mod rig;
mod support;
mod xids;
