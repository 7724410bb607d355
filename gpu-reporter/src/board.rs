//! What is known at this moment: the sampling threads write, the uplink and the pages read.
//!
//! GPUs are kept by UUID, because indices change at a reboot and a lost GPU cannot say its UUID any
//! more. Values too old to be true are left out of a snapshot: a group may be at most three periods
//! old. The lock is held for a copy only, never across a driver call.

mod record;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::{
    device::{Fast, Medium, is_placeholder, placeholder},
    sample::{Driver, DriverStatus, Gpu, Identity},
};
use record::{Record, Timed, view};

/// Newest events kept per GPU.
pub const XIDS_MAX: usize = 16;
/// Most GPUs remembered, missing ones included; what the control plane takes in one report.
const RECORDS_MAX: usize = 64;
/// Quick rounds in a row after which a slow or returned GPU counts as well.
const GOOD_ROUNDS: u32 = 3;
/// Groups younger than this are sent whatever the period.
const AGE_FLOOR: Duration = Duration::from_secs(2);

/// How a GPU answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Good,
    Lost(String),
    /// It is there but cannot be opened.
    Closed(String),
}

#[derive(Default)]
struct Inner {
    driver: Driver,
    driver_hung: Option<String>,
    records: BTreeMap<String, Record>,
    events: u64,
    rounds: u64,
}

impl Inner {
    fn by_index(&mut self, index: u32) -> Option<&mut Record> {
        self.records.values_mut().find(|r| r.listed && r.identity.index == index)
    }
}

impl Inner {
    /// Whether one more GPU can be remembered; a missing one is forgotten for it.
    fn make_room(&mut self) -> bool {
        if self.records.len() < RECORDS_MAX {
            return true;
        }
        let missing = self.records.iter().find(|(_, record)| !record.listed);
        match missing.map(|(uuid, _)| uuid.clone()) {
            Some(uuid) => self.records.remove(&uuid).is_some(),
            None => false,
        }
    }
}

/// Oldest age at which each tier's groups are still told.
#[derive(Clone, Copy, Debug)]
pub struct AgeLimits {
    pub fast: Duration,
    pub medium: Duration,
}

impl AgeLimits {
    /// Three periods, and never below two seconds.
    #[must_use]
    pub fn of_periods(fast: Duration, medium: Duration) -> Self {
        Self { fast: (fast * 3).max(AGE_FLOOR), medium: (medium * 3).max(AGE_FLOOR) }
    }
}

/// See the module.
#[derive(Default)]
pub struct Board {
    inner: Mutex<Inner>,
    /// A sampling round ended.
    pub round: Notify,
    /// Something happened that must not wait for the next period.
    pub urgent: Notify,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes one record and calls for a report at once if that changed its state.
    fn change(&self, inner: &mut Inner, uuid: &str, act: impl FnOnce(&mut Record)) {
        if let Some(record) = inner.records.get_mut(uuid) {
            let before = record.state().0;
            act(record);
            if record.state().0 != before {
                let (state, detail) = record.state();
                let uuid = &record.identity.uuid;
                tracing::warn!(gpu = %uuid, state = state.as_str(), %detail, "gpu state changed");
                self.urgent.notify_one();
            }
        }
    }

    pub fn set_driver(&self, driver: Driver) {
        let mut inner = self.lock();
        if inner.driver.status != driver.status || inner.driver.detail != driver.detail {
            let status = driver.status.as_str();
            tracing::info!(status, detail = %driver.detail, "driver state");
            self.urgent.notify_one();
        }
        inner.driver = driver;
    }

    /// Says that calls about the whole driver do not return, or that they do again.
    pub fn set_driver_hung(&self, detail: Option<String>) {
        let mut inner = self.lock();
        if inner.driver_hung.is_some() != detail.is_some() {
            tracing::warn!(hung = detail.is_some(), detail = ?detail, "driver calls");
            self.urgent.notify_one();
        }
        inner.driver_hung = detail;
    }

    /// Notes a GPU that was opened.
    pub fn attached(&self, identity: &Identity) {
        let mut inner = self.lock();
        if !is_placeholder(&identity.uuid) {
            inner.records.remove(&placeholder(identity.index));
        }
        // Whoever stood at this index before stands there no more.
        for record in inner.records.values_mut() {
            if record.identity.index == identity.index && record.identity.uuid != identity.uuid {
                record.listed = false;
            }
        }
        if !inner.records.contains_key(&identity.uuid) {
            if !inner.make_room() {
                return;
            }
            inner.records.insert(identity.uuid.clone(), Record::new(identity.clone()));
            self.urgent.notify_one();
        }
        self.change(&mut inner, &identity.uuid, |record| {
            record.identity = identity.clone();
            record.listed = true;
            record.answer = Answer::Good;
        });
    }

    /// The name that the GPU at `index` had when it could still say it.
    #[must_use]
    pub fn uuid_at(&self, index: u32) -> String {
        let inner = self.lock();
        let at = |listed: bool| {
            inner.records.values().find(|r| r.identity.index == index && r.listed == listed)
        };
        at(true).map_or_else(|| placeholder(index), |record| record.identity.uuid.clone())
    }

    /// Notes how the GPU at `index` answers; one never seen before gets a name made of its index.
    pub fn answer(&self, index: u32, answer: Answer) {
        let mut inner = self.lock();
        let known = inner.by_index(index).map(|record| record.identity.uuid.clone());
        let uuid = match known {
            Some(uuid) => uuid,
            None if inner.make_room() => {
                let uuid = placeholder(index);
                let identity = Identity { uuid: uuid.clone(), index, ..Identity::default() };
                inner.records.insert(uuid.clone(), Record::new(identity));
                self.urgent.notify_one();
                uuid
            }
            None => return,
        };
        self.change(&mut inner, &uuid, |record| record.answer = answer);
    }

    /// Ends an inventory: whoever was not present is missing.
    pub fn settle(&self, present: &BTreeSet<String>) {
        let mut inner = self.lock();
        inner.records.retain(|uuid, _| present.contains(uuid) || !is_placeholder(uuid));
        let uuids: Vec<String> = inner.records.keys().cloned().collect();
        for uuid in uuids {
            let listed = present.contains(&uuid);
            self.change(&mut inner, &uuid, |record| record.listed = listed);
        }
    }

    /// Takes what a tier read.
    pub fn fast(&self, uuid: &str, at: Instant, fast: Fast, unsupported: Vec<String>) {
        let mut inner = self.lock();
        let before = inner.records.get(uuid).and_then(|r| r.recovery_action.as_ref());
        let action_changed = before.map(|t| t.value) != fast.recovery_action
            && (before.is_some() || fast.recovery_action != Some(0));
        if action_changed {
            self.urgent.notify_one();
        }
        self.change(&mut inner, uuid, |record| {
            record.answer = Answer::Good;
            record.utilization = fast.utilization.map(|value| Timed { at, value });
            record.memory = fast.memory.map(|value| Timed { at, value });
            record.thermal = fast.thermal.map(|value| Timed { at, value });
            record.power = fast.power.map(|value| Timed { at, value });
            record.clocks = fast.clocks.map(|value| Timed { at, value });
            record.recovery_action = fast.recovery_action.map(|value| Timed { at, value });
            record.unsupported = unsupported;
            record.good_rounds_needed = record.good_rounds_needed.saturating_sub(1);
            if record.good_rounds_needed == 0 {
                record.slow = None;
            }
        });
    }

    /// Takes what a tier read.
    pub fn medium(&self, uuid: &str, at: Instant, medium: Medium) {
        let mut inner = self.lock();
        self.change(&mut inner, uuid, |record| {
            record.ecc = medium.ecc.map(|value| Timed { at, value });
            record.pcie = medium.pcie.map(|value| Timed { at, value });
            record.mig = medium.mig.map(|value| Timed { at, value });
            record.processes = medium.processes.map(|value| Timed { at, value });
        });
    }

    /// Says that a call on this GPU takes long.
    pub fn slow(&self, index: u32, detail: String) {
        let mut inner = self.lock();
        if let Some(uuid) = inner.by_index(index).map(|r| r.identity.uuid.clone()) {
            self.change(&mut inner, &uuid, |record| {
                record.slow = Some(detail);
                record.good_rounds_needed = GOOD_ROUNDS;
            });
        }
    }

    /// Says that a call on this GPU does not return.
    pub fn hung(&self, index: u32, detail: String) {
        // Gives a GPU that hangs before it was ever opened a name.
        if self.lock().by_index(index).is_none() {
            self.answer(index, Answer::Good);
        }
        let mut inner = self.lock();
        if let Some(uuid) = inner.by_index(index).map(|r| r.identity.uuid.clone()) {
            self.change(&mut inner, &uuid, |record| record.hung = Some(detail));
        }
    }

    /// Says that the call returned after all; the GPU counts as slow until some rounds were quick.
    pub fn returned(&self, index: u32) {
        let mut inner = self.lock();
        if let Some(uuid) = inner.by_index(index).map(|r| r.identity.uuid.clone()) {
            self.change(&mut inner, &uuid, |record| {
                record.slow = record.hung.take().map(|detail| format!("{detail}, then returned"));
                record.good_rounds_needed = GOOD_ROUNDS;
            });
        }
    }

    /// Takes an event.
    pub fn xid(&self, index: u32, code: u32, at: Instant) {
        let mut inner = self.lock();
        inner.events += 1;
        let id = inner.events;
        if let Some(record) = inner.by_index(index) {
            record.xids.push_front((at, code, id));
            record.xids.truncate(XIDS_MAX);
            // Codes are a closed set of a few hundred; a driver gone mad does not grow this.
            if record.xids_total.len() < 512 || record.xids_total.contains_key(&code) {
                *record.xids_total.entry(code).or_default() += 1;
            }
        }
        self.urgent.notify_one();
    }

    pub fn round_done(&self) {
        self.lock().rounds += 1;
        self.round.notify_one();
    }

    /// Sampling rounds so far.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.lock().rounds
    }

    #[must_use]
    pub fn driver(&self) -> Driver {
        let inner = self.lock();
        let mut driver = inner.driver.clone();
        if let Some(detail) = &inner.driver_hung {
            driver.status = DriverStatus::Hung;
            driver.detail.clone_from(detail);
        }
        driver
    }

    /// Events by GPU and code since the reporter started.
    #[must_use]
    pub fn xid_totals(&self) -> Vec<(String, u32, u64)> {
        let inner = self.lock();
        let totals = |r: &Record| -> Vec<(String, u32, u64)> {
            r.xids_total.iter().map(|(code, n)| (r.identity.uuid.clone(), *code, *n)).collect()
        };
        inner.records.values().flat_map(totals).collect()
    }

    /// All GPUs as of `now`, by index.
    #[must_use]
    pub fn gpus(&self, now: Instant, limits: AgeLimits) -> Vec<Gpu> {
        let inner = self.lock();
        let mut gpus: Vec<Gpu> = inner.records.values().map(|r| view(r, now, limits)).collect();
        gpus.sort_by(|a, b| {
            (a.identity.index, &a.identity.uuid).cmp(&(b.identity.index, &b.identity.uuid))
        });
        gpus
    }
}

#[cfg(test)]
#[path = "board/tests.rs"]
mod tests;
