//! When steps happen: each period, at once after an event, and soon after a report.
//!
//! Reporters and the control plane have periods of their own; waiting for the next one of ours would
//! age a report by half a period on average, and with it every proxy's idea of the load. A report
//! waits only for those of other nodes that come with it, and steps keep two fifths of a period
//! between them, so that many nodes cause at most five updates where one period makes two. A step for
//! reports starts the period anew: one soon after it would tell nothing and hold up the next report.
//!
//! Events between periods have a limit of their own, so that a GPU whose throttle flaps cannot turn
//! into a flood of updates; what comes above it waits for the next free place or the period.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::{bucket::Bucket, core::Core, metrics::Cause};

/// Reports that come within it go into one step.
const GATHER: Duration = Duration::from_millis(20);
/// Least distance to the step before, in periods.
const SPACING: f64 = 0.4;

/// Steps until the process stops.
pub async fn run(core: Arc<Core>) {
    let mut period = interval(core.config.period);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let extra = core.config.limits.event_pushes_per_second;
    let mut extra = Bucket::new(Instant::now(), extra, extra);
    let mut is_due = false;
    let mut report_due: Option<Instant> = None;
    let mut stepped = Instant::now();
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
            () = sleep_until(report_due.unwrap_or(stepped)), if report_due.is_some() => Cause::Report,
            () = core.reports.notified(), if report_due.is_none() => {
                let spaced = stepped + core.config.period.mul_f64(SPACING);
                report_due = Some(spaced.max(Instant::now() + GATHER));
                continue;
            }
        };
        if cause == Cause::Event && !extra.take(Instant::now()) {
            continue;
        }
        is_due = false;
        report_due = None;
        stepped = Instant::now();
        if cause == Cause::Report {
            period.reset();
        }
        core.step(cause);
    }
}
