//! Between the wire and the domain: the only files of this package that know both.

mod check;
mod feedback;
mod report;
mod update;

pub use feedback::{feedback, hello};
pub use report::offer;
pub use update::{Interest, update};
