use std::time::Duration;

use tidegate_proto::v1;

use super::*;
use crate::testing;

fn report(sequence: u64) -> ReportRequest {
    let gpu = v1::Gpu { uuid: "GPU-1".into(), ..v1::Gpu::default() };
    ReportRequest {
        node: "node-a".into(),
        boot_id: "b1".into(),
        sequence,
        interval_ms: 500,
        gpus: vec![gpu],
        ..ReportRequest::default()
    }
}

fn intake(core: &Arc<Core>) -> Intake {
    Intake::new(core.admit(StreamKind::Report).unwrap(), Instant::now())
}

fn verdict(intake: &mut Intake, report: ReportRequest) -> (ReportVerdict, String) {
    let answer = intake.take(report, Instant::now());
    (answer.verdict(), answer.reason)
}

#[tokio::test(start_paused = true)]
async fn each_report_gets_its_verdict_and_reason() {
    let core = testing::core("", &[]);
    let mut intake = intake(&core);
    assert_eq!(verdict(&mut intake, report(1)), (ReportVerdict::Accepted, String::new()));
    let stale = verdict(&mut intake, report(1));
    assert_eq!(stale, (ReportVerdict::Stale, "sequence: 1 is not above 1".into()));
    let mut broken = report(2);
    broken.gpus[0].utilization =
        Some(v1::Utilization { sm_percent: Some(101), ..v1::Utilization::default() });
    let invalid = verdict(&mut intake, broken);
    let reason = "gpus[0].utilization.sm_percent: 101 is outside 0..=100";
    assert_eq!(invalid, (ReportVerdict::Invalid, reason.into()));
    let rebooted = ReportRequest { boot_id: "b2".into(), ..report(1) };
    assert_eq!(verdict(&mut intake, rebooted).0, ReportVerdict::Invalid);
    let other = ReportRequest { node: "node-b".into(), ..report(3) };
    let (verdict_of_other, reason) = verdict(&mut intake, other);
    assert_eq!(verdict_of_other, ReportVerdict::Invalid);
    assert!(reason.contains("\"node-a\""), "{reason}");
    let m = &core.metrics;
    assert_eq!(m.reports_accepted.get(), 1);
    for reason in [
        ReportReason::Sequence,
        ReportReason::Invalid,
        ReportReason::BootChanged,
        ReportReason::IdentityChanged,
    ] {
        assert_eq!(m.rejected(reason), 1, "{reason:?}");
    }
    assert_eq!(core.store().entries().count(), 1, "node-b was not made");
}

#[tokio::test(start_paused = true)]
async fn refused_report_does_not_use_up_its_sequence() {
    let core = testing::core("", &[]);
    let mut intake = intake(&core);
    let mut broken = report(5);
    broken.gpus[0].index = 9_999;
    assert_eq!(verdict(&mut intake, broken).0, ReportVerdict::Invalid);
    assert_eq!(verdict(&mut intake, report(5)).0, ReportVerdict::Accepted);
}

#[tokio::test(start_paused = true)]
async fn reports_are_taken_at_the_rate_and_refused_above() {
    let core = testing::core("limits: {reports_per_second: 2, reports_burst: 3}", &[]);
    let mut intake = intake(&core);
    let verdicts: Vec<ReportVerdict> = (1..=4).map(|n| verdict(&mut intake, report(n)).0).collect();
    let [taken, fast] = [ReportVerdict::Accepted, ReportVerdict::TooFast];
    assert_eq!(verdicts, [taken, taken, taken, fast]);
    tokio::time::advance(Duration::from_millis(499)).await;
    assert_eq!(verdict(&mut intake, report(5)).0, fast);
    tokio::time::advance(Duration::from_millis(2)).await;
    assert_eq!(verdict(&mut intake, report(6)).0, taken);
}

#[tokio::test(start_paused = true)]
async fn new_streams_do_not_reset_the_rate_of_a_node() {
    let core = testing::core("limits: {reports_per_second: 1, reports_burst: 2}", &[]);
    let mut first = intake(&core);
    assert_eq!(verdict(&mut first, report(1)).0, ReportVerdict::Accepted);
    assert_eq!(verdict(&mut first, report(2)).0, ReportVerdict::Accepted);
    let mut second = intake(&core);
    assert_eq!(verdict(&mut second, report(3)).0, ReportVerdict::TooFast);
}

#[tokio::test(start_paused = true)]
async fn reporter_that_is_too_fast_is_asked_to_slow_down_and_never_to_speed_up() {
    let core = testing::core("limits: {reports_per_second: 2, reports_burst: 1}", &[]);
    let mut intake = intake(&core);
    let wished = |intake: &mut Intake, interval_ms| {
        intake.take(ReportRequest { interval_ms, ..report(9) }, Instant::now()).interval_ms
    };
    assert_eq!(wished(&mut intake, 100), None, "taken");
    assert_eq!(wished(&mut intake, 100), Some(500));
    assert_eq!(wished(&mut intake, 500), None);
    assert_eq!(wished(&mut intake, 2_000), None);
}

#[tokio::test(start_paused = true)]
async fn default_rate_holds_the_fastest_reporter() {
    let core = testing::core("", &[]);
    let mut intake = intake(&core);
    // 100 ms less a tenth of jitter, for a minute.
    for sequence in 1..=666 {
        assert_eq!(verdict(&mut intake, report(sequence)).0, ReportVerdict::Accepted, "{sequence}");
        tokio::time::advance(Duration::from_millis(90)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_events_ring_before_the_period() {
    let core = testing::core("", &[]);
    let mut intake = intake(&core);
    let rings = |core: &Core| core.metrics.report_events.get();
    verdict(&mut intake, report(1));
    assert_eq!(rings(&core), 1, "a node that comes");
    verdict(&mut intake, report(2));
    assert_eq!(rings(&core), 1);
    let mut xid = report(3);
    xid.gpus[0].xids = vec![v1::XidEvent { code: 79, age_ms: 0, event_id: 1 }];
    verdict(&mut intake, xid.clone());
    assert_eq!(rings(&core), 2);
    verdict(&mut intake, ReportRequest { sequence: 4, ..xid });
    assert_eq!(rings(&core), 2, "the same event again");
}

#[tokio::test(start_paused = true)]
async fn streams_are_admitted_at_the_limit_and_refused_above() {
    let core = testing::core("limits: {report_streams: 2, watch_streams: 1}", &[]);
    let first = core.admit(StreamKind::Report).unwrap();
    let _second = core.admit(StreamKind::Report).unwrap();
    let refused = core.admit(StreamKind::Report).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let _watch = core.admit(StreamKind::Watch).unwrap();
    assert!(core.admit(StreamKind::Watch).is_err());
    drop(first);
    assert!(core.admit(StreamKind::Report).is_ok(), "a place is free again");
}

#[tokio::test(start_paused = true)]
async fn new_streams_come_at_the_rate_and_not_above() {
    let core = testing::core("limits: {streams_per_second: 10, streams_burst: 2}", &[]);
    let admitted: Vec<bool> = (0..3).map(|_| core.admit(StreamKind::Watch).is_ok()).collect();
    assert_eq!(admitted, [true, true, false]);
    tokio::time::advance(Duration::from_millis(101)).await;
    assert!(core.admit(StreamKind::Report).is_ok());
    let refused = core.admit(StreamKind::Report).unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "clients come back after that");
}
