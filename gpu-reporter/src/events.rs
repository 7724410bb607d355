//! The thread that waits for Xid events.
//!
//! Registers every open GPU by itself, so that one that refuses blinds only itself. A wait that fails
//! fails at once again, so after a failure the thread rests a second and builds the set anew.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    nvml::{Code, EventSet, Failure, Handle, Session},
    shared::{Opened, Shared},
    watch::Slot,
};

/// Longest single wait; also how soon a new GPU is noticed.
pub(crate) const WAIT_MS: u32 = 500;
/// Rest after a failure.
const REST: Duration = Duration::from_secs(1);
/// Xid, GPU unavailable, recovery action changed.
const XID: u64 = 0x8;
const WANTED: u64 = XID | 0x4000 | 0x8000;

pub struct Events {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
}

impl Events {
    #[must_use]
    pub const fn new(shared: Arc<Shared>, slot: Arc<Slot>) -> Self {
        Self { shared, slot }
    }

    /// Runs until the thread is given up.
    pub fn run(self) {
        while !self.slot.is_abandoned() {
            let gpus = self.shared.watchable();
            match self.shared.opened() {
                Some(opened) if !gpus.is_empty() => self.watch(&opened, &gpus),
                _ => self.shared.wait(Duration::from_millis(100)),
            }
        }
        self.slot.end();
    }

    fn watch(&self, opened: &Opened, gpus: &BTreeSet<u32>) {
        let costs = Arc::clone(&self.shared.costs);
        // A wait takes as long as its timeout without being late.
        let slow = self.shared.sampling.slow_call + Duration::from_millis(WAIT_MS.into());
        let library = Arc::clone(&opened.library);
        let session = Session::new(library, Arc::clone(&self.slot), costs, slow);
        let set = match session.create_event_set() {
            Ok(set) => set,
            Err(failure) => return self.rest(failure),
        };
        let handles = register(&session, &set, gpus);
        let ended = self.collect(&session, &set, &handles, opened.epoch, gpus);
        // A set that cannot be freed is the driver's to forget.
        let freed = session.free_event_set(set);
        if let Err(failure) = ended {
            self.rest(failure);
        } else if let Err(failure) = freed {
            tracing::debug!(%failure, "event set not freed");
        }
    }

    /// Waits for events until the GPUs change.
    fn collect(
        &self,
        session: &Session,
        set: &EventSet,
        handles: &[Handle],
        epoch: u64,
        gpus: &BTreeSet<u32>,
    ) -> Result<(), Failure> {
        loop {
            match session.wait(set, handles, WAIT_MS) {
                Ok(event) => {
                    if let Some(gpu) = event.gpu {
                        if event.kind & XID != 0 {
                            let code = u32::try_from(event.data).unwrap_or(u32::MAX);
                            self.shared.board.xid(gpu, code, Instant::now());
                        }
                        self.shared.boost(gpu);
                    }
                }
                // TIMEOUT.
                Err(Failure::Other(Code(10))) => {}
                Err(failure) => return Err(failure),
            }
            let same = self.shared.opened().is_some_and(|now| now.epoch == epoch);
            if !same || self.shared.watchable() != *gpus {
                return Ok(());
            }
        }
    }

    fn rest(&self, failure: Failure) {
        tracing::debug!(%failure, "event watch failed");
        let until = Instant::now() + REST;
        while Instant::now() < until && !self.slot.is_abandoned() {
            self.shared.wait(until.saturating_duration_since(Instant::now()));
        }
    }
}

fn register(session: &Session, set: &EventSet, gpus: &BTreeSet<u32>) -> Vec<Handle> {
    let mut handles = Vec::new();
    for gpu in gpus {
        let registered = session.handle(*gpu).and_then(|handle| {
            let types = session.event_types(handle).unwrap_or(XID) & WANTED;
            session.register(handle, if types == 0 { XID } else { types }, set)?;
            Ok(handle)
        });
        match registered {
            Ok(handle) => handles.push(handle),
            Err(failure) => tracing::debug!(gpu, %failure, "events not watched"),
        }
    }
    handles
}
