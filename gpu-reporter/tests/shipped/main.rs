//! The shipped binary over the fake driver: real process, real library, real stream.

mod control_plane;
mod faults;
mod once;
mod reporting;
mod rig;
mod support;
mod xids;
