//! One GPU's newest figures.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use super::{AgeLimits, Answer};
use crate::sample::{
    Aged, Clocks, Ecc, Gpu, GpuState, Identity, Memory, Mig, Pcie, Power, Processes, Thermal,
    Utilization, Xid,
};

/// A value and when it was read.
pub(super) struct Timed<T> {
    pub(super) at: Instant,
    pub(super) value: T,
}

pub(super) struct Record {
    pub(super) identity: Identity,
    pub(super) answer: Answer,
    pub(super) listed: bool,
    pub(super) hung: Option<String>,
    pub(super) slow: Option<String>,
    pub(super) good_rounds_needed: u32,
    pub(super) utilization: Option<Timed<Utilization>>,
    pub(super) memory: Option<Timed<Memory>>,
    pub(super) thermal: Option<Timed<Thermal>>,
    pub(super) power: Option<Timed<Power>>,
    pub(super) clocks: Option<Timed<Clocks>>,
    pub(super) ecc: Option<Timed<Ecc>>,
    pub(super) pcie: Option<Timed<Pcie>>,
    pub(super) processes: Option<Timed<Processes>>,
    pub(super) mig: Option<Timed<Mig>>,
    pub(super) recovery_action: Option<Timed<u32>>,
    pub(super) xids: VecDeque<(Instant, u32, u64)>,
    pub(super) xids_total: BTreeMap<u32, u64>,
    pub(super) unsupported: Vec<String>,
}

impl Record {
    pub(super) const fn new(identity: Identity) -> Self {
        Self {
            identity,
            answer: Answer::Good,
            listed: true,
            hung: None,
            slow: None,
            good_rounds_needed: 0,
            utilization: None,
            memory: None,
            thermal: None,
            power: None,
            clocks: None,
            ecc: None,
            pcie: None,
            processes: None,
            mig: None,
            recovery_action: None,
            xids: VecDeque::new(),
            xids_total: BTreeMap::new(),
            unsupported: Vec::new(),
        }
    }

    pub(super) fn state(&self) -> (GpuState, String) {
        match (&self.hung, &self.answer, &self.slow) {
            _ if !self.listed => {
                (GpuState::Missing, "was listed by the driver and is not any more".into())
            }
            (Some(detail), _, _) => (GpuState::Hung, detail.clone()),
            (None, Answer::Lost(detail), _) => (GpuState::Lost, detail.clone()),
            (None, Answer::Closed(detail), _) => (GpuState::Unknown, detail.clone()),
            (None, Answer::Good, Some(detail)) => (GpuState::Slow, detail.clone()),
            (None, Answer::Good, None) => (GpuState::Ok, String::new()),
        }
    }
}

/// The record as of `now`, without what is too old to be true.
pub(super) fn view(record: &Record, now: Instant, limits: AgeLimits) -> Gpu {
    let (state, state_detail) = record.state();
    let (fast, medium) = (limits.fast, limits.medium);
    Gpu {
        identity: record.identity.clone(),
        state,
        state_detail,
        utilization: aged(record.utilization.as_ref(), now, fast),
        memory: aged(record.memory.as_ref(), now, fast),
        thermal: aged(record.thermal.as_ref(), now, fast),
        power: aged(record.power.as_ref(), now, fast),
        clocks: aged(record.clocks.as_ref(), now, fast),
        ecc: aged(record.ecc.as_ref(), now, medium),
        pcie: aged(record.pcie.as_ref(), now, medium),
        processes: aged(record.processes.as_ref(), now, medium),
        mig: aged(record.mig.as_ref(), now, medium).map(|mig| mig.value),
        xids: record
            .xids
            .iter()
            .map(|(at, code, id)| Xid { code: *code, age_ms: age_ms(*at, now), event_id: *id })
            .collect(),
        recovery_action: aged(record.recovery_action.as_ref(), now, fast).map(|a| a.value),
        unsupported: record.unsupported.clone(),
    }
}

fn aged<T: Clone>(group: Option<&Timed<T>>, now: Instant, limit: Duration) -> Option<Aged<T>> {
    let group = group?;
    (now.saturating_duration_since(group.at) <= limit)
        .then(|| Aged { age_ms: age_ms(group.at, now), value: group.value.clone() })
}

fn age_ms(at: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u64::MAX)
}
