//! What is remembered about one GPU between reports: verdicts that outlast their cause.
//!
//! A fatal Xid is one event, but the GPU stays broken until it is reset; so its verdict is latched
//! with its time and with what clears it. Evidence of a reset, always together with a driver that
//! asks for nothing and a GPU whose calls succeed:
//! * the GPU was lost, missing or without a driver in between;
//! * its volatile ECC counter went back;
//! * the reporter started anew and the driver says in so many words (recovery action 0) that all is well.
//!
//! A restarted reporter alone proves nothing, and neither does a call that hung and then returned.
use alloc::{string::String, vec::Vec};

use tidegate_policy::units::{Span, Time};

use crate::{
    gate::{Clears, GateFactor, GateReason},
    input::{DriverStatus, GpuSample, GpuState, NodeReport},
    xid::{self, XidVerdict},
};

/// How long a soft verdict holds, and how near two events count as repeated.
pub(crate) const SOFT: Span = Span::secs(600);
/// Window and count of application faults that say something about the GPU after all.
pub(crate) const APPLICATION_WINDOW: Span = Span::secs(300);
pub(crate) const APPLICATION_COUNT: usize = 3;
/// A 94 this near to a 48 says that the double-bit error was contained.
const CONTAINED_NEAR: Span = Span::secs(60);
/// Reports without a fault after which a lost, hung or missing GPU is trusted again.
const GOOD_ROUNDS: u8 = 3;
/// Gate of soft verdicts.
pub(crate) const SOFT_GATE: f64 = 0.5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Latch {
    verdict: XidVerdict,
    reason: GateReason,
    code: Option<u32>,
    since: Time,
}

/// One GPU's memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GpuMemory {
    boot_id: String,
    received: Time,
    is_known: bool,
    last_event: Option<u64>,
    /// At most one per reason.
    latches: Vec<Latch>,
    /// Newest application faults, at most `APPLICATION_COUNT`.
    application: Vec<Time>,
    down: Option<(GateReason, Time)>,
    good_rounds: u8,
    was_absent: bool,
    volatile_uncorrected: Option<u64>,
    /// The newest three samples of the slowdown bit, newest lowest.
    slowdown_history: u8,
    pub(crate) slowdown_since: Option<Time>,
    pub(crate) clocks_seen: Option<Time>,
    pub(crate) thermal_seen: Option<Time>,
}

const HW_SLOWDOWN: u64 = 0x08;
const HW_THERMAL: u64 = 0x40;
const POWER_BRAKE: u64 = 0x80;

impl GpuMemory {
    /// Takes in a report once; the same report again changes nothing.
    pub(crate) fn observe(
        &mut self,
        report: &NodeReport,
        gpu: &GpuSample,
        overrides: &[(u32, XidVerdict)],
    ) {
        let is_new_boot = self.boot_id != report.boot_id;
        if self.is_known && !is_new_boot && self.received == report.received {
            // An event's own report may arrive in the same millisecond as the periodic one.
            self.observe_xids(report, gpu, false, false, overrides);
            return;
        }
        let is_first = !self.is_known;
        self.is_known = true;
        self.received = report.received;
        if is_new_boot {
            self.boot_id.clone_from(&report.boot_id);
            self.last_event = None;
        }
        let counter_went_back = self.observe_ecc(report.received, gpu);
        self.observe_state(report, gpu);
        let is_well = report.driver == DriverStatus::Ok
            && gpu.state == GpuState::Ok
            && gpu.recovery_action.unwrap_or(0) == 0;
        let vouched = is_new_boot && !is_first && gpu.recovery_action == Some(0);
        if is_well && (core::mem::take(&mut self.was_absent) || counter_went_back || vouched) {
            let since = report.received;
            self.latches.retain(|l| !is_hard(l.verdict) || l.since >= since);
        }
        self.observe_xids(report, gpu, is_first, is_new_boot, overrides);
        self.observe_slowdown(report.received, gpu);
    }

    /// An operator vouches for the GPU.
    pub(crate) fn acknowledge(&mut self) {
        self.latches.clear();
        self.application.clear();
    }

    /// A GPU of this kind of verdict makes its whole node suspect.
    pub(crate) fn is_bus_lost(&self) -> bool {
        self.latches.iter().any(|l| l.verdict == XidVerdict::BusLost)
    }

    /// The verdicts in force.
    pub(crate) fn factors(&self, now: Time, spans_gpus: bool) -> Vec<GateFactor> {
        let mut out = Vec::new();
        if let Some((reason, since)) = self.down {
            let reason = if self.good_rounds > 0 { GateReason::GpuReturning } else { reason };
            let mut factor = GateFactor::measured(reason, 0.0, None);
            factor.since = Some(since);
            out.push(factor);
        }
        for latch in &self.latches {
            let is_recent = now.since(latch.since) < SOFT;
            let (value, clears) = match latch.verdict {
                XidVerdict::Fatal | XidVerdict::BusLost => (0.0, Clears::WithReset),
                XidVerdict::Link if spans_gpus => (0.0, Clears::WithReset),
                XidVerdict::Link
                | XidVerdict::Contained
                | XidVerdict::RemapPending
                | XidVerdict::Degraded
                | XidVerdict::FatalWhenRepeated
                    if is_recent =>
                {
                    (SOFT_GATE, Clears::At(latch.since.plus(SOFT)))
                }
                XidVerdict::Link
                | XidVerdict::Contained
                | XidVerdict::RemapPending
                | XidVerdict::Degraded
                | XidVerdict::FatalWhenRepeated
                | XidVerdict::Ignore
                | XidVerdict::Application => continue,
            };
            out.push(GateFactor {
                reason: latch.reason,
                value,
                gpu: None,
                measured: latch.code.map(f64::from),
                since: Some(latch.since),
                clears,
            });
        }
        let recent: Vec<Time> = self
            .application
            .iter()
            .copied()
            .filter(|t| now.since(*t) < APPLICATION_WINDOW)
            .collect();
        if let (true, Some(first)) = (recent.len() >= APPLICATION_COUNT, recent.first()) {
            out.push(GateFactor {
                reason: GateReason::XidRepeated,
                value: SOFT_GATE,
                gpu: None,
                measured: Some(recent.len() as f64),
                since: recent.last().copied(),
                clears: Clears::At(first.plus(APPLICATION_WINDOW)),
            });
        }
        out
    }

    fn observe_state(&mut self, report: &NodeReport, gpu: &GpuSample) {
        if matches!(report.driver, DriverStatus::Absent | DriverStatus::Mismatch) {
            self.was_absent = true;
        }
        let reason = match gpu.state {
            GpuState::Lost => GateReason::GpuLost,
            GpuState::Missing => GateReason::GpuMissing,
            GpuState::Hung => GateReason::GpuHung,
            GpuState::Ok | GpuState::Slow | GpuState::Unknown => {
                // Only a GPU whose calls succeed comes back; an unknown state is no recovery.
                if self.down.is_some() && gpu.state == GpuState::Ok {
                    self.good_rounds = self.good_rounds.saturating_add(1);
                    if self.good_rounds >= GOOD_ROUNDS {
                        self.down = None;
                        self.good_rounds = 0;
                    }
                }
                return;
            }
        };
        self.was_absent |= reason != GateReason::GpuHung;
        let since = self.down.map_or(report.received, |(_, since)| since);
        self.down = Some((reason, since));
        self.good_rounds = 0;
    }

    /// Latches new uncorrectable errors; true when the counter went back, which only a reset does.
    fn observe_ecc(&mut self, received: Time, gpu: &GpuSample) -> bool {
        let Some(count) = gpu.ecc.and_then(|e| e.values.volatile_uncorrected) else {
            return false;
        };
        let before = self.volatile_uncorrected.replace(count);
        match before {
            Some(before) if count > before => {
                self.latch(XidVerdict::Fatal, GateReason::EccUncorrected, None, received);
                false
            }
            Some(before) => count < before,
            // What was counted before we looked may long have been dealt with.
            None => false,
        }
    }

    fn observe_xids(
        &mut self,
        report: &NodeReport,
        gpu: &GpuSample,
        is_first: bool,
        is_new_boot: bool,
        overrides: &[(u32, XidVerdict)],
    ) {
        let mut events: Vec<_> = gpu
            .xids
            .iter()
            .filter(|e| self.last_event.is_none_or(|last| e.event_id > last))
            .collect();
        events.sort_by_key(|e| (e.event_id, e.code));
        let is_vouched = report.driver == DriverStatus::Ok
            && gpu.state == GpuState::Ok
            && gpu.recovery_action == Some(0);
        for event in events {
            self.last_event = Some(self.last_event.unwrap_or(0).max(event.event_id));
            // Old events met at a first look: if the driver asks for nothing, they were dealt with.
            if (is_first || is_new_boot) && is_vouched && event.age > SOFT {
                continue;
            }
            let at = report.received.minus(event.age);
            self.take_event(event.code, at, xid::verdict(event.code, overrides));
        }
    }

    fn take_event(&mut self, code: u32, at: Time, verdict: XidVerdict) {
        let reason = match verdict {
            XidVerdict::Ignore => return,
            XidVerdict::Application => {
                self.application.push(at);
                self.application.sort_unstable();
                if self.application.len() > APPLICATION_COUNT {
                    self.application.remove(0);
                }
                return;
            }
            XidVerdict::Contained => {
                let is_near =
                    |l: &Latch| l.code == Some(48) && distance(l.since, at) <= CONTAINED_NEAR;
                self.latches.retain(|l| !is_near(l));
                GateReason::XidDegraded
            }
            XidVerdict::RemapPending => GateReason::RemapPending,
            XidVerdict::Degraded => GateReason::XidDegraded,
            XidVerdict::FatalWhenRepeated => {
                let is_repeated = self
                    .latches
                    .iter()
                    .any(|l| l.code == Some(code) && distance(l.since, at) <= SOFT);
                if is_repeated {
                    self.latches.retain(|l| l.code != Some(code));
                    self.latch(XidVerdict::Fatal, GateReason::XidFatal, Some(code), at);
                    return;
                }
                GateReason::XidDegraded
            }
            XidVerdict::Link => GateReason::XidLink,
            XidVerdict::Fatal if code == 48 => {
                let is_contained = self.latches.iter().any(|l| {
                    l.verdict == XidVerdict::Contained && distance(l.since, at) <= CONTAINED_NEAR
                });
                if is_contained {
                    return;
                }
                GateReason::XidFatal
            }
            XidVerdict::Fatal | XidVerdict::BusLost => GateReason::XidFatal,
        };
        self.latch(verdict, reason, Some(code), at);
    }

    /// The newest of a reason stays, but a lost bus is never covered up by a lesser fatal event.
    fn latch(&mut self, verdict: XidVerdict, reason: GateReason, code: Option<u32>, since: Time) {
        if let Some(old) = self.latches.iter_mut().find(|l| l.reason == reason) {
            if verdict >= old.verdict && (verdict > old.verdict || since >= old.since) {
                *old = Latch { verdict, reason, code, since };
            }
            return;
        }
        self.latches.push(Latch { verdict, reason, code, since });
        self.latches.sort_by_key(|l| l.reason);
    }

    fn observe_slowdown(&mut self, received: Time, gpu: &GpuSample) {
        if gpu.thermal.is_some_and(|t| t.values.temperature_c.is_some()) {
            self.thermal_seen = Some(received);
        }
        let Some(bits) = gpu.clocks.and_then(|c| c.values.event_reasons) else { return };
        self.clocks_seen = Some(received);
        let bit = u8::from(bits & HW_SLOWDOWN != 0);
        self.slowdown_history = (self.slowdown_history << 1 | bit) & 0b111;
        // The plain bit also appears for a moment at changes of the performance state.
        let is_slow =
            bits & (HW_THERMAL | POWER_BRAKE) != 0 || self.slowdown_history.count_ones() >= 2;
        self.slowdown_since = is_slow.then(|| self.slowdown_since.unwrap_or(received));
    }
}

fn is_hard(verdict: XidVerdict) -> bool {
    matches!(verdict, XidVerdict::Fatal | XidVerdict::BusLost | XidVerdict::Link)
}

fn distance(a: Time, b: Time) -> Span {
    a.since(b).max(b.since(a))
}

#[cfg(test)]
mod tests;
