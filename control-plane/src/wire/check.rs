//! Collects what is wrong with one message from outside, with path, value and allowed range.

use std::{
    fmt::{self, Display},
    ops::RangeInclusive,
};

use crate::{config::Limits, text};

/// Bytes of a reason that goes back to the sender.
const REASON_BYTES_MAX: usize = 512;
/// Bytes of an identity: an Envoy node id of 128 and what the filter adds.
const IDENTITY_BYTES_MAX: usize = 256;
/// Errors kept; later ones would be cut from the reason anyway.
const ERRORS_MAX: usize = 8;

pub(super) struct Check<'a> {
    errors: Vec<String>,
    pub(super) limits: &'a Limits,
}

impl<'a> Check<'a> {
    pub(super) fn new(limits: &'a Limits) -> Self {
        Self { errors: Vec::new(), limits }
    }

    pub(super) fn within<T: PartialOrd + Display>(
        &mut self,
        path: fmt::Arguments<'_>,
        value: T,
        range: RangeInclusive<T>,
    ) {
        // NaN is in no range.
        if !range.contains(&value) {
            let allowed = format!("{}..={}", range.start(), range.end());
            self.refuse(path, &value, &allowed);
        }
    }

    pub(super) fn maybe<T: PartialOrd + Display>(
        &mut self,
        path: fmt::Arguments<'_>,
        value: Option<T>,
        range: RangeInclusive<T>,
    ) {
        if let Some(value) = value {
            self.within(path, value, range);
        }
    }

    pub(super) fn name(&mut self, path: fmt::Arguments<'_>, value: &str) {
        let bytes_max = self.limits.text_bytes;
        if !text::is_name(value, bytes_max) {
            self.refuse(path, &quoted(value), &text::name_rule(bytes_max));
        }
    }

    /// A name that somebody else makes, such as an Envoy node id: longer, and of any printable text.
    pub(super) fn identity(&mut self, path: fmt::Arguments<'_>, value: &str) {
        let is_long = value.len() > IDENTITY_BYTES_MAX;
        if value.is_empty() || is_long || value.chars().any(char::is_control) {
            let allowed = format!("1..={IDENTITY_BYTES_MAX} bytes without control characters");
            self.refuse(path, &quoted(value), &allowed);
        }
    }

    pub(super) fn text(&mut self, path: fmt::Arguments<'_>, value: &str) {
        let bytes_max = self.limits.text_bytes;
        if value.len() > bytes_max || value.chars().any(char::is_control) {
            let allowed = format!("0..={bytes_max} bytes without control characters");
            self.refuse(path, &quoted(value), &allowed);
        }
    }

    pub(super) fn length(&mut self, path: fmt::Arguments<'_>, count: usize, max: usize) {
        if count > max {
            self.refuse(path, &count, &format!("a length of 0..={max}"));
        }
    }

    pub(super) fn refuse(&mut self, path: fmt::Arguments<'_>, value: &dyn Display, allowed: &str) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(format!("{path}: {value} is outside {allowed}"));
        }
    }

    /// Everything found so far.
    pub(super) fn verdict(&self) -> Result<(), String> {
        if self.errors.is_empty() {
            return Ok(());
        }
        Err(text::cut(&self.errors.join("; "), REASON_BYTES_MAX))
    }
}

/// A text as an error shows it: short, with control characters escaped.
fn quoted(value: &str) -> String {
    format!("{:?}", text::cut(value, 80))
}
