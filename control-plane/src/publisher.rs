//! When steps happen: each period, and at once after an event.
//!
//! Events between periods have a limit of their own, so that a GPU whose throttle flaps cannot turn
//! into a flood of updates; what comes above it waits for the next free place or the period.

use std::sync::Arc;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::{bucket::Bucket, core::Core, metrics::Cause};

/// Steps until the process stops.
pub async fn run(core: Arc<Core>) {
    let mut period = interval(core.config.period);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let extra = core.config.limits.event_pushes_per_second;
    let mut extra = Bucket::new(Instant::now(), extra, extra);
    let mut is_due = false;
    loop {
        let cause = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            _ = period.tick() => Cause::Period,
            () = sleep(extra.wait(Instant::now())), if is_due => Cause::Event,
            () = core.events.notified(), if !is_due => {
                is_due = true;
                continue;
            }
        };
        if cause == Cause::Event && !extra.take(Instant::now()) {
            continue;
        }
        is_due = false;
        core.step(cause);
    }
}
