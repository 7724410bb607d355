//! Which change in a node's reports must reach the proxies before the next period.
//!
//! Broken, or broken no more; a new Xid; a throttle that starts or ends; another set of GPUs or
//! workloads. Loads and temperatures change in every report and wait for the period.

use std::collections::BTreeMap;

use tidegate_weighting::input::{GpuSample, NodeReport};

use crate::store::Accepted;

/// Clock event bits that stand for real throttling: hardware slowdown, software thermal, hardware
/// thermal, power brake. Idle, application clocks and the power cap come and go in normal work.
const THROTTLE_BITS: u64 = 0x08 | 0x20 | 0x40 | 0x80;

/// Compares a node's newest report with the one before it.
#[must_use]
pub fn compare(before: &NodeReport, after: &NodeReport) -> Accepted {
    if before.driver != after.driver
        || before.gpus.len() != after.gpus.len()
        || before.workloads.len() != after.workloads.len()
    {
        return Accepted::Event;
    }
    let known: BTreeMap<&str, &GpuSample> =
        before.gpus.iter().map(|g| (g.uuid.as_str(), g)).collect();
    let gpus_changed = after
        .gpus
        .iter()
        .any(|g| known.get(g.uuid.as_str()).is_none_or(|old| is_gpu_event(old, g)));
    let workloads_changed = before.workloads.iter().zip(&after.workloads).any(|(old, new)| {
        (&old.endpoint, &old.service, &old.gpu_uuids)
            != (&new.endpoint, &new.service, &new.gpu_uuids)
    });
    // Event numbers of two boots do not compare.
    let has_new_xids =
        before.boot_id != after.boot_id && after.gpus.iter().any(|g| !g.xids.is_empty());
    if gpus_changed || workloads_changed || has_new_xids {
        Accepted::Event
    } else {
        Accepted::Usual
    }
}

fn is_gpu_event(before: &GpuSample, after: &GpuSample) -> bool {
    let signs = |g: &GpuSample| {
        let ecc = g.ecc.map(|e| e.values);
        (
            g.state,
            g.recovery_action,
            g.clocks.and_then(|c| c.values.event_reasons).map(|bits| bits & THROTTLE_BITS),
            ecc.and_then(|e| e.volatile_uncorrected),
            ecc.and_then(|e| e.is_remap_failed),
            g.xids.iter().map(|x| x.event_id).max(),
        )
    };
    signs(before) != signs(after)
}

#[cfg(test)]
mod tests {
    use tidegate_policy::units::Span;
    use tidegate_weighting::input::{Aged, Clocks, DriverStatus, GpuState, Utilization, XidEvent};

    use super::*;

    fn node(change: impl FnOnce(&mut NodeReport)) -> NodeReport {
        let gpu = GpuSample { uuid: "GPU-1".into(), ..GpuSample::default() };
        let mut report = NodeReport { gpus: vec![gpu], ..NodeReport::default() };
        change(&mut report);
        report
    }

    fn throttled(bits: u64) -> NodeReport {
        let values = Clocks { event_reasons: Some(bits), ..Clocks::default() };
        node(|n| n.gpus[0].clocks = Some(Aged { age: Span::ZERO, values }))
    }

    fn check(before: &NodeReport, after: &NodeReport, expected: Accepted) {
        assert_eq!(compare(before, after), expected);
        assert_eq!(compare(after, before), expected, "the way back counts too");
    }

    #[test]
    fn load_and_ages_wait_for_the_period() {
        let busy = Utilization { sm_percent: Some(97), ..Utilization::default() };
        let after = node(|n| n.gpus[0].utilization = Some(Aged { age: Span::ms(9), values: busy }));
        check(&node(|_| ()), &after, Accepted::Usual);
    }

    #[test]
    fn state_of_gpu_and_driver_is_told_at_once() {
        let ok = node(|_| ());
        check(&ok, &node(|n| n.gpus[0].state = GpuState::Lost), Accepted::Event);
        check(&ok, &node(|n| n.gpus[0].recovery_action = Some(1)), Accepted::Event);
        check(&ok, &node(|n| n.driver = DriverStatus::Hung), Accepted::Event);
        check(&ok, &node(|n| n.gpus.clear()), Accepted::Event);
        check(&ok, &node(|n| n.gpus[0].uuid = "GPU-2".into()), Accepted::Event);
    }

    #[test]
    fn new_xid_is_told_once() {
        let xid = |event_id| {
            node(|n| {
                n.gpus[0].xids = vec![XidEvent { code: 79, age: Span::ms(event_id), event_id }]
            })
        };
        check(&node(|_| ()), &xid(1), Accepted::Event);
        check(&xid(1), &xid(2), Accepted::Event);
        let mut older = xid(1);
        older.gpus[0].xids[0].age = Span::ms(500);
        check(&xid(1), &older, Accepted::Usual);
        // A restarted reporter numbers from one again.
        let restarted = NodeReport { boot_id: "next".into(), ..xid(1) };
        check(&xid(1), &restarted, Accepted::Event);
        let quiet = NodeReport { boot_id: "next".into(), ..node(|_| ()) };
        check(&node(|_| ()), &quiet, Accepted::Usual);
    }

    #[test]
    fn only_real_throttling_is_an_event() {
        for (bits, expected) in [
            (0x01, Accepted::Usual),
            (0x02, Accepted::Usual),
            (0x04, Accepted::Usual),
            (0x08, Accepted::Event),
            (0x20, Accepted::Event),
            (0x40, Accepted::Event),
            (0x80, Accepted::Event),
            (0x100, Accepted::Usual),
        ] {
            check(&throttled(0), &throttled(bits), expected);
        }
    }
}
