//! The place where a thread says which driver call it is in, and the counts of all calls.
//!
//! A driver call that hangs sits in the kernel and cannot be cancelled or timed out. So the thread
//! writes down function, GPU and start before each call, and another thread looks: three atomics, no
//! lock, about 60 ns a call. A thread found hanging is marked abandoned; when its call returns after
//! all, it sees the mark, gives up its results and ends.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::nvml::Function;

/// The call that a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub function: Function,
    /// `None` for calls about the library as a whole.
    pub gpu: Option<u32>,
    pub running: Duration,
}

/// One thread's notice.
#[derive(Debug)]
pub struct Slot {
    base: Instant,
    /// Microseconds since `base`, plus one; zero is idle.
    started: AtomicU64,
    /// Function in the low half; GPU plus one in the high half.
    what: AtomicU64,
    abandoned: AtomicBool,
    ended: AtomicBool,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            base: Instant::now(),
            started: AtomicU64::new(0),
            what: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }
}

impl Slot {
    /// Notes the start of a call.
    pub fn enter(&self, function: Function, gpu: Option<u32>) -> Instant {
        let now = Instant::now();
        let gpu = gpu.map_or(0, |gpu| u64::from(gpu) + 1);
        let function = u64::try_from(function.place()).unwrap_or(0);
        self.what.store(gpu << 32 | function, Ordering::Relaxed);
        self.started.store(micros(now.duration_since(self.base)) + 1, Ordering::Release);
        now
    }

    /// Notes the end of the call.
    pub fn leave(&self) {
        self.started.store(0, Ordering::Release);
    }

    /// The call in progress, as seen at `now`.
    #[must_use]
    pub fn call(&self, now: Instant) -> Option<Call> {
        let started = self.started.load(Ordering::Acquire);
        let what = self.what.load(Ordering::Relaxed);
        // The pair is torn if the next call began between the two loads: then nothing hangs.
        if started == 0 || self.started.load(Ordering::Acquire) != started {
            return None;
        }
        let running = micros(now.duration_since(self.base)).saturating_sub(started - 1);
        let function = usize::try_from(what & 0xffff_ffff).ok()?;
        Some(Call {
            function: *Function::ALL.get(function)?,
            gpu: u32::try_from(what >> 32).ok()?.checked_sub(1),
            running: Duration::from_micros(running),
        })
    }

    /// Gives the thread up; it ends when its call returns.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Notes that the thread is gone.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[derive(Debug, Default)]
struct Count {
    calls: AtomicU64,
    micros: AtomicU64,
    failed: AtomicU64,
    late: AtomicU64,
}

/// What one function has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub calls: u64,
    pub micros: u64,
    pub failed: u64,
    /// Calls that took longer than the slow limit.
    pub late: u64,
}

/// Counts of calls by function, shared by all threads.
#[derive(Debug)]
pub struct Costs(Vec<Count>);

impl Default for Costs {
    fn default() -> Self {
        Self(Function::ALL.iter().map(|_| Count::default()).collect())
    }
}

impl Costs {
    pub fn note(&self, function: Function, took: Duration, success: bool, slow: Duration) {
        let Some(count) = self.0.get(function.place()) else { return };
        count.calls.fetch_add(1, Ordering::Relaxed);
        count.micros.fetch_add(micros(took), Ordering::Relaxed);
        count.failed.fetch_add(u64::from(!success), Ordering::Relaxed);
        count.late.fetch_add(u64::from(took > slow), Ordering::Relaxed);
    }

    #[must_use]
    pub fn of(&self, function: Function) -> Cost {
        self.0.get(function.place()).map_or_else(Cost::default, |count| Cost {
            calls: count.calls.load(Ordering::Relaxed),
            micros: count.micros.load(Ordering::Relaxed),
            failed: count.failed.load(Ordering::Relaxed),
            late: count.late.load(Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_shows_while_it_runs_only() {
        let slot = Slot::default();
        assert_eq!(slot.call(Instant::now()), None);
        let start = slot.enter(Function::nvmlDeviceGetName, Some(3));
        let call = slot.call(start + Duration::from_millis(1_500)).unwrap();
        assert_eq!((call.function, call.gpu), (Function::nvmlDeviceGetName, Some(3)));
        assert_eq!(call.running.as_millis(), 1_500);
        slot.leave();
        assert_eq!(slot.call(Instant::now()), None);
    }

    #[test]
    fn a_call_about_the_library_has_no_gpu() {
        let slot = Slot::default();
        let start = slot.enter(Function::nvmlInit_v2, None);
        assert_eq!(slot.call(start).unwrap().gpu, None);
    }

    #[test]
    fn costs_add_up_by_function() {
        let costs = Costs::default();
        let slow = Duration::from_millis(10);
        costs.note(Function::nvmlDeviceGetName, Duration::from_micros(5), true, slow);
        costs.note(Function::nvmlDeviceGetName, Duration::from_millis(11), false, slow);
        let cost = costs.of(Function::nvmlDeviceGetName);
        assert_eq!(cost, Cost { calls: 2, micros: 11_005, failed: 1, late: 1 });
        assert_eq!(costs.of(Function::nvmlDeviceGetUUID), Cost::default());
    }
}
