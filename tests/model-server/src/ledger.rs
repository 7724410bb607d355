//! What reached a GPU and how it ended: the side of the victim, by which tests prove that a fault
//! was in force and that nothing was lost.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::fault::Fault;

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Ledger {
    /// Requests that arrived; `started = finished + failed + cancelled + in_flight`.
    pub(crate) started: u64,
    /// Answered to the last byte with a status below 500.
    pub(crate) finished: u64,
    /// Answered with 5xx, reset or cut by a fault.
    pub(crate) failed: u64,
    /// Left by the client before the end.
    pub(crate) cancelled: u64,
    pub(crate) in_flight: u64,
    /// Answers by status.
    pub(crate) by_status: BTreeMap<u16, u64>,
    /// Requests that met a fault, whatever its kind.
    pub(crate) faulted: u64,
    /// Requests that carried the steering header, which no upstream should see.
    pub(crate) steering_header_seen: u64,
    pub(crate) last_request_unix_ms: Option<u64>,
}

/// The ledger with what is computed on reading.
#[derive(Serialize)]
pub(crate) struct Page<'a> {
    pub(crate) address: String,
    pub(crate) fault: Fault,
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) last_request_age_ms: Option<u64>,
    #[serde(flatten)]
    pub(crate) ledger: &'a Ledger,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered(u16),
    /// The connection was broken on purpose.
    Broken,
    Cancelled,
}

impl Ledger {
    pub(crate) fn start(&mut self, steering_header: Presence) {
        self.started += 1;
        self.in_flight += 1;
        self.last_request_unix_ms = Some(unix_ms());
        self.steering_header_seen += u64::from(steering_header == Presence::Present);
    }

    pub(crate) fn end(&mut self, end: End) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match end {
            End::Answered(status) => {
                *self.by_status.entry(status).or_default() += 1;
                if status < 500 { self.finished += 1 } else { self.failed += 1 }
            }
            End::Broken => self.failed += 1,
            End::Cancelled => self.cancelled += 1,
        }
    }

    pub(crate) fn last_request_age_ms(&self) -> Option<u64> {
        self.last_request_unix_ms.map(|last| unix_ms().saturating_sub(last))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Present,
    Absent,
}

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_has_one_end() {
        let mut ledger = Ledger::default();
        let ends = [
            End::Answered(200),
            End::Answered(404),
            End::Answered(500),
            End::Broken,
            End::Cancelled,
        ];
        for end in ends {
            ledger.start(Presence::Absent);
            ledger.end(end);
        }
        ledger.start(Presence::Present);
        // 200 and 404 finish; 500 and the broken one fail.
        assert_eq!((ledger.started, ledger.finished, ledger.failed), (6, 2, 2));
        assert_eq!((ledger.cancelled, ledger.in_flight, ledger.steering_header_seen), (1, 1, 1));
        assert_eq!(ledger.by_status, BTreeMap::from([(200, 1), (404, 1), (500, 1)]));
    }
}
