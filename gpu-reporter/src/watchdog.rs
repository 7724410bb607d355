//! Looks at the driver threads from outside and replaces one that hangs.
//!
//! A thread inside a driver call that does not return cannot be stopped. So it is abandoned, its GPU is
//! `hung`, and a new thread carries on without that GPU; at most two threads are abandoned at a time. If
//! the last one hangs too, or the call is about the driver as a whole, the driver is `hung`. When an
//! abandoned call returns, its thread ends and its GPU is read again.
//!
//! Limits: 500 ms is slow, 1 s is hung. Other tools wait 10 s or more before they say so, because for
//! them a false alarm drains a node. Here it costs one GPU its traffic for a few seconds, and a driver
//! that does not answer within a second is no place to send a request to. Opening a GPU may take three
//! times as long, since without persistence mode the driver loads firmware for it.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    events::{Events, WAIT_MS},
    nvml::Function,
    sampler::Sampler,
    shared::Shared,
    watch::{Call, Slot},
};

/// Most abandoned threads of one kind.
pub const REPLACEMENTS_MAX: usize = 2;
/// How often to look.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How much longer than another call opening may take.
const OPENING_FACTOR: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Sampler,
    Events,
}

/// One role's thread and those given up.
struct Crew {
    role: Role,
    current: Arc<Slot>,
    stuck: Vec<(Arc<Slot>, Option<u32>)>,
    /// The GPU on which the current thread hangs and is not replaced.
    waiting_on: Option<u32>,
}

/// What to do about a call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    Slow,
    Hung,
}

pub struct Watchdog {
    shared: Arc<Shared>,
    sampler: Crew,
    events: Option<Crew>,
}

/// Whether events are watched too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventWatch {
    Off,
    On,
}

impl Watchdog {
    /// Starts the driver threads.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(shared: Arc<Shared>, events: EventWatch) -> std::io::Result<Self> {
        let sampler = Crew::start(Role::Sampler, &shared)?;
        let events = match events {
            EventWatch::Off => None,
            EventWatch::On => Some(Crew::start(Role::Events, &shared)?),
        };
        Ok(Self { shared, sampler, events })
    }

    /// Looks for ever.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look(Instant::now());
        }
    }

    fn look(&mut self, now: Instant) {
        let hung = self.sampler.look(&self.shared, now);
        self.shared.board.set_driver_hung(hung);
        if let Some(events) = &mut self.events {
            events.look(&self.shared, now);
        }
    }
}

impl Crew {
    fn start(role: Role, shared: &Arc<Shared>) -> std::io::Result<Self> {
        let current = spawn(role, shared)?;
        Ok(Self { role, current, stuck: Vec::new(), waiting_on: None })
    }

    /// Returns why the driver as a whole counts as hung, if it does.
    fn look(&mut self, shared: &Arc<Shared>, now: Instant) -> Option<String> {
        let role = self.role;
        self.stuck.retain(|(slot, gpu)| {
            let ended = slot.is_ended();
            if ended && let (Role::Sampler, Some(gpu)) = (role, *gpu) {
                shared.board.returned(gpu);
                shared.set_free(gpu);
            }
            !ended
        });
        let call = self.current.call(now);
        if call.is_none_or(|call| verdict(&call, shared) != Verdict::Hung)
            && let Some(gpu) = self.waiting_on.take()
        {
            shared.board.returned(gpu);
        }
        let call = call?;
        let ms = call.running.as_millis();
        let detail = format!("{} has not returned for {ms} ms", call.function.name());
        match (verdict(&call, shared), role) {
            (Verdict::Fine, _) => None,
            (Verdict::Slow, _) => {
                if let (Role::Sampler, Some(gpu)) = (role, call.gpu) {
                    shared.board.slow(gpu, detail);
                }
                None
            }
            (Verdict::Hung, Role::Sampler) => {
                let gpu = call.gpu;
                if let Some(gpu) = gpu {
                    shared.board.hung(gpu, format!("{} does not return", call.function.name()));
                }
                let replaced = gpu.is_some() && self.replace(shared, gpu);
                self.waiting_on = gpu.filter(|_| !replaced);
                (!replaced).then_some(detail)
            }
            (Verdict::Hung, Role::Events) => {
                self.replace(shared, call.gpu);
                None
            }
        }
    }

    /// Gives the current thread up for a new one, unless too many are given up already.
    fn replace(&mut self, shared: &Arc<Shared>, gpu: Option<u32>) -> bool {
        if self.stuck.len() >= REPLACEMENTS_MAX {
            return false;
        }
        if let (Role::Sampler, Some(gpu)) = (self.role, gpu) {
            shared.set_stuck(gpu);
        }
        self.current.abandon();
        match spawn(self.role, shared) {
            Ok(slot) => {
                let old = std::mem::replace(&mut self.current, slot);
                self.stuck.push((old, gpu));
                true
            }
            Err(error) => {
                tracing::error!(%error, "no thread for the driver");
                false
            }
        }
    }
}

fn verdict(call: &Call, shared: &Shared) -> Verdict {
    let sampling = &shared.sampling;
    let allowance = match call.function {
        Function::nvmlEventSetWait_v2 => Duration::from_millis(WAIT_MS.into()),
        Function::nvmlInit_v2
        | Function::nvmlShutdown
        | Function::nvmlDeviceGetHandleByIndex_v2 => sampling.hung_call * (OPENING_FACTOR - 1),
        _ => Duration::ZERO,
    };
    if call.running > sampling.hung_call + allowance {
        Verdict::Hung
    } else if call.running > sampling.slow_call + allowance {
        Verdict::Slow
    } else {
        Verdict::Fine
    }
}

fn spawn(role: Role, shared: &Arc<Shared>) -> std::io::Result<Arc<Slot>> {
    let slot = Arc::new(Slot::default());
    let (shared, own) = (Arc::clone(shared), Arc::clone(&slot));
    // The table of symbols is built on the stack, several copies of it without optimisation.
    let builder = thread::Builder::new().stack_size(2 << 20);
    match role {
        Role::Sampler => {
            builder.name("nvml-sampler".into()).spawn(move || Sampler::new(shared, own).run())?
        }
        Role::Events => {
            builder.name("nvml-events".into()).spawn(move || Events::new(shared, own).run())?
        }
    };
    Ok(slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Sampling;
    use tidegate_reporter_config::parse;

    #[test]
    fn limits_are_exclusive_and_opening_has_three_times_as_long() {
        let value = serde_json::from_str(r#"{"version":1}"#).unwrap();
        let shared = Shared::new(Sampling::from(&parse(&value).unwrap()), 500);
        let check = |function, ms, expected| {
            let call = Call { function, gpu: Some(0), running: Duration::from_millis(ms) };
            assert_eq!(verdict(&call, &shared), expected, "{function:?} {ms}");
        };
        check(Function::nvmlDeviceGetName, 500, Verdict::Fine);
        check(Function::nvmlDeviceGetName, 501, Verdict::Slow);
        check(Function::nvmlDeviceGetName, 1_000, Verdict::Slow);
        check(Function::nvmlDeviceGetName, 1_001, Verdict::Hung);
        check(Function::nvmlDeviceGetHandleByIndex_v2, 2_500, Verdict::Fine);
        check(Function::nvmlDeviceGetHandleByIndex_v2, 3_000, Verdict::Slow);
        check(Function::nvmlInit_v2, 3_001, Verdict::Hung);
        check(Function::nvmlEventSetWait_v2, 1_000, Verdict::Fine);
        check(Function::nvmlEventSetWait_v2, 1_501, Verdict::Hung);
    }
}
