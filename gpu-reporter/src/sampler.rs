//! The thread that reads the driver, tier by tier.
//!
//! One thread for all GPUs, because driver calls serialise on one lock anyway. Fast tier each period,
//! jittered by a tenth so that nodes do not beat together; medium tier spread over its period by GPU,
//! so that no round carries all; slow tier once a minute. A GPU whose calls are slow is read in a fifth
//! of the time at most, so that it cannot starve the others.
//!
//! States: no library → open with back-off 1–30 s → inventory → rounds; a void handle, another count,
//! or a GPU lost for a while closes the library and begins anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use rand::RngExt;
use tidegate_reporter_config::GpuName;

use crate::{
    board::Answer,
    device::{Device, is_placeholder},
    nvml::{Code, Failure, Library, OpenError, Session},
    sample::{Driver, DriverStatus},
    shared::Shared,
    watch::Slot,
};

/// Waits between attempts to open the library.
const OPEN_WAIT_MIN: Duration = Duration::from_secs(1);
const OPEN_WAIT_MAX: Duration = Duration::from_secs(30);
/// A process sees a lost GPU come back only after it has opened the library again.
const REOPEN_LOST: Duration = Duration::from_secs(8);
/// Not more often than this, whatever the handles say.
const REOPEN_MIN: Duration = Duration::from_secs(2);

struct Known {
    device: Device,
    medium_due: Instant,
    slow_due: Instant,
    /// A slow GPU is left alone until then.
    rest_until: Instant,
    is_new: bool,
}

/// Why a round ended early.
enum Stop {
    Abandoned,
    Reopen,
}

pub struct Sampler {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    known: BTreeMap<u32, Known>,
    /// GPUs left out by `--gpus`.
    unwanted: BTreeSet<u32>,
    count: u32,
    count_due: Instant,
    lost_since: Option<Instant>,
    opened_at: Instant,
}

impl Sampler {
    #[must_use]
    pub fn new(shared: Arc<Shared>, slot: Arc<Slot>) -> Self {
        let now = Instant::now();
        Self {
            shared,
            slot,
            known: BTreeMap::new(),
            unwanted: BTreeSet::new(),
            count: 0,
            count_due: now,
            lost_since: None,
            opened_at: now,
        }
    }

    /// Runs until the thread is given up.
    pub fn run(mut self) {
        let mut wait = OPEN_WAIT_MIN;
        while !self.slot.is_abandoned() {
            let session = match self.open() {
                Ok(session) => session,
                Err(error) => {
                    self.shared.board.set_driver(self.driver_failed(&error));
                    self.shared.board.round_done();
                    self.shared.wait(jittered(wait));
                    wait = (wait * 2).min(OPEN_WAIT_MAX);
                    continue;
                }
            };
            wait = OPEN_WAIT_MIN;
            if let Stop::Reopen = self.rounds(&session) {
                tracing::info!("opening the driver library again");
                self.shared.set_closed();
            }
        }
        self.slot.end();
        self.shared.wake_threads();
    }

    fn open(&mut self) -> Result<Session, OpenError> {
        let opened = match self.shared.opened() {
            Some(opened) => opened,
            None => {
                let path = self.shared.sampling.nvml_lib.as_deref();
                self.shared.set_opened(Arc::new(Library::open(path, &self.slot)?))
            }
        };
        self.known.clear();
        self.unwanted.clear();
        self.lost_since = None;
        self.opened_at = Instant::now();
        self.count_due = self.opened_at;
        let costs = Arc::clone(&self.shared.costs);
        let slow = self.shared.sampling.slow_call;
        Ok(Session::new(opened.library, Arc::clone(&self.slot), costs, slow))
    }

    fn driver_failed(&self, error: &OpenError) -> Driver {
        let status = match error.code {
            // LIBRARY_NOT_FOUND and DRIVER_NOT_LOADED: nothing there yet.
            Code::NO_LIBRARY | Code(9 | 12) => DriverStatus::Absent,
            Code(18) => DriverStatus::Mismatch,
            _ => DriverStatus::Failed,
        };
        let gpus_expected = self.shared.sampling.expected_gpus;
        Driver { status, detail: error.to_string(), gpus_expected, ..Driver::default() }
    }

    fn rounds(&mut self, session: &Session) -> Stop {
        loop {
            let start = Instant::now();
            if let Err(stop) = self.round(session) {
                match stop {
                    Stop::Abandoned => return stop,
                    Stop::Reopen if self.opened_at.elapsed() >= REOPEN_MIN => return stop,
                    Stop::Reopen => {}
                }
            }
            self.shared.board.round_done();
            let period = jittered(self.shared.interval());
            self.shared.wait(period.saturating_sub(start.elapsed()));
        }
    }

    fn round(&mut self, session: &Session) -> Result<(), Stop> {
        let inventory = Instant::now() >= self.count_due;
        if inventory {
            self.take_inventory(session)?;
        }
        let mut reopen = false;
        let mut lost = false;
        for index in 0..self.count {
            if self.shared.is_stuck(index) || self.unwanted.contains(&index) {
                self.known.remove(&index);
                continue;
            }
            match self.read(session, index) {
                Ok(()) => {}
                Err(Failure::Abandoned) => return Err(Stop::Abandoned),
                Err(Failure::Stale(_)) => reopen = true,
                Err(Failure::Lost(code)) => {
                    lost = true;
                    self.shared.board.answer(index, Answer::Lost(code.to_string()));
                }
                // Only opening a GPU fails this way.
                Err(Failure::Unsupported(code) | Failure::Other(code)) => {
                    let detail = format!("cannot be opened: {code}");
                    self.shared.board.answer(index, Answer::Closed(detail));
                }
            }
        }
        if inventory {
            self.settle();
        }
        let now = Instant::now();
        let lost_since = lost.then(|| self.lost_since.unwrap_or(now));
        self.lost_since = lost_since;
        reopen |= lost_since.is_some_and(|since| now.duration_since(since) > REOPEN_LOST);
        if reopen { Err(Stop::Reopen) } else { Ok(()) }
    }

    /// Count and versions. Another count than before means other handles.
    fn take_inventory(&mut self, session: &Session) -> Result<(), Stop> {
        let before = self.count;
        let first = self.known.is_empty();
        match session.count() {
            Ok(count) => {
                self.count = count.min(64);
                if !first && self.count != before {
                    return Err(Stop::Reopen);
                }
                self.shared.board.set_driver(self.driver(session, DriverStatus::Ok, ""));
            }
            Err(Failure::Abandoned) => return Err(Stop::Abandoned),
            Err(failure @ (Failure::Stale(_) | Failure::Lost(_))) => {
                let detail = format!("nvmlDeviceGetCount_v2: {failure}");
                self.shared.board.set_driver(self.driver(session, DriverStatus::Failed, &detail));
                return Err(Stop::Reopen);
            }
            Err(failure @ (Failure::Unsupported(_) | Failure::Other(_))) => {
                // The GPUs known so far can still be read.
                let detail = format!("nvmlDeviceGetCount_v2: {failure}");
                self.shared.board.set_driver(self.driver(session, DriverStatus::Failed, &detail));
                self.count = before;
            }
        }
        self.count_due = Instant::now() + self.shared.sampling.medium.min(Duration::from_secs(10));
        Ok(())
    }

    fn driver(&self, session: &Session, status: DriverStatus, detail: &str) -> Driver {
        Driver {
            status,
            driver_version: session.driver_version().unwrap_or_default(),
            nvml_version: session.nvml_version().unwrap_or_default(),
            cuda_version: session.cuda_version().ok().and_then(|v| u32::try_from(v).ok()),
            detail: detail.into(),
            gpus_expected: self.shared.sampling.expected_gpus,
        }
    }

    /// Reads what is due of one GPU, opening it first if need be.
    fn read(&mut self, session: &Session, index: u32) -> Result<(), Failure> {
        let sampling = &self.shared.sampling;
        let start = Instant::now();
        if !self.known.contains_key(&index) {
            let device = Device::attach(session, index)?;
            if !self.wants(&device) {
                self.unwanted.insert(index);
                return Ok(());
            }
            self.shared.board.attached(&device.identity);
            self.shared.set_attached(index);
            let known = Known {
                device,
                medium_due: start,
                slow_due: start,
                rest_until: start,
                is_new: true,
            };
            self.known.insert(index, known);
        }
        let count = self.count.max(1);
        let Some(known) = self.known.get_mut(&index) else { return Ok(()) };
        if start < known.rest_until {
            return Ok(());
        }
        let first = known.is_new;
        if start >= known.slow_due {
            known.slow_due = start + sampling.slow;
            known.device.slow(session)?;
        }
        let boosted = self.shared.is_boosted(index);
        let medium = if start >= known.medium_due || boosted {
            if !first && !known.device.is_same(session)? {
                return Err(Failure::Stale(Code(2)));
            }
            // The first time all are read; from then on each GPU has its place in the period.
            let spread =
                if first { sampling.medium * (index + 1) / count } else { sampling.medium };
            known.medium_due = start + spread;
            known.is_new = false;
            Some(known.device.medium(session, sampling.processes)?)
        } else {
            None
        };
        let at = Instant::now();
        let fast = known.device.fast(session)?;
        let unsupported = known.device.unsupported();
        let uuid = known.device.identity.uuid.clone();
        if let Some(medium) = medium {
            self.shared.board.medium(&uuid, at, medium);
        }
        let took = start.elapsed();
        if took > sampling.slow_call {
            known.rest_until = Instant::now() + took * 4;
            let ms = took.as_millis();
            self.shared.board.slow(index, format!("a round took {ms} ms"));
        }
        self.shared.board.fast(&uuid, at, fast, unsupported);
        Ok(())
    }

    /// Compares who is there with who was.
    fn settle(&self) {
        let board = &self.shared.board;
        let present = (0..self.count)
            .filter(|index| !self.unwanted.contains(index))
            .map(|index| match self.known.get(&index) {
                Some(known) => known.device.identity.uuid.clone(),
                None => board.uuid_at(index),
            })
            .collect();
        board.settle(&present);
    }

    fn wants(&self, device: &Device) -> bool {
        let names = &self.shared.sampling.gpus;
        let identity = &device.identity;
        names.is_empty()
            || names.iter().any(|name| match name {
                GpuName::Index(index) => *index == identity.index,
                // A GPU that cannot say its UUID may be the one that is meant.
                GpuName::Uuid(uuid) => *uuid == identity.uuid || is_placeholder(&identity.uuid),
            })
    }
}

/// `span` give or take a tenth.
pub(crate) fn jittered(span: Duration) -> Duration {
    span.mul_f64(rand::rng().random_range(0.9..1.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_a_tenth() {
        for _ in 0..1_000 {
            let span = jittered(Duration::from_millis(1_000)).as_millis();
            assert!((900..=1_100).contains(&span), "{span}");
        }
    }
}
