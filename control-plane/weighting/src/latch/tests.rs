use alloc::vec;

use super::*;
use crate::{
    input::{Aged, Clocks, Ecc, XidEvent},
    testkit::best_gpu,
};

struct Watched {
    memory: GpuMemory,
    report: NodeReport,
    gpu: GpuSample,
    events: u64,
}

impl Watched {
    fn new() -> Self {
        let report = NodeReport {
            node: "n".into(),
            boot_id: "a".into(),
            received: Time::ms(10_000_000),
            driver: DriverStatus::Ok,
            ..NodeReport::default()
        };
        let mut watched =
            Self { memory: GpuMemory::default(), report, gpu: best_gpu("g", 0), events: 0 };
        watched.observe();
        watched
    }

    fn observe(&mut self) {
        self.memory.observe(&self.report, &self.gpu, &[]);
    }

    fn after(&mut self, ms: u64) -> &mut Self {
        self.report.received = self.report.received.plus(Span::ms(ms));
        self.observe();
        self
    }

    fn xid(&mut self, code: u32) -> &mut Self {
        self.xid_aged(code, Span::ZERO)
    }

    fn xid_aged(&mut self, code: u32, age: Span) -> &mut Self {
        self.events += 1;
        self.gpu.xids = vec![XidEvent { code, age, event_id: self.events }];
        self.after(500)
    }

    fn gate(&self) -> f64 {
        self.gate_of(false)
    }

    fn gate_of(&self, spans_gpus: bool) -> f64 {
        let factors = self.memory.factors(self.report.received, spans_gpus);
        factors.iter().map(|f| f.value).product()
    }

    fn clocks(&mut self, bits: u64) -> &mut Self {
        self.gpu.clocks = Some(Aged {
            age: Span::ZERO,
            values: Clocks { event_reasons: Some(bits), ..Clocks::default() },
        });
        self.after(500)
    }

    fn volatile(&mut self, count: u64) -> &mut Self {
        let values = Ecc { volatile_uncorrected: Some(count), ..Ecc::default() };
        self.gpu.ecc = Some(Aged { age: Span::ZERO, values });
        self.after(500)
    }
}

#[test]
fn fatal_events_stay_without_end() {
    for code in [46, 48, 62, 64, 79, 95, 119, 120, 140] {
        let mut gpu = Watched::new();
        assert_eq!(gpu.xid(code).gate(), 0.0, "xid {code}");
        assert_eq!(gpu.after(86_400_000).gate(), 0.0, "xid {code} a day later");
    }
}

#[test]
fn soft_events_end_after_ten_minutes() {
    for code in [63, 92, 94, 109, 54] {
        let mut gpu = Watched::new();
        assert_eq!(gpu.xid(code).gate(), 0.5, "xid {code}");
        assert_eq!(gpu.after(599_999).gate(), 0.5, "xid {code}");
        assert_eq!(gpu.after(1).gate(), 1.0, "xid {code}");
    }
}

#[test]
fn three_application_faults_in_five_minutes_count() {
    let mut gpu = Watched::new();
    assert_eq!(gpu.xid(13).gate(), 1.0);
    assert_eq!(gpu.xid(31).gate(), 1.0);
    assert_eq!(gpu.xid(45).gate(), 0.5);
    // The first was 1,000 ms before the last: it leaves the window 299,000 ms after the last.
    assert_eq!(gpu.after(298_999).gate(), 0.5);
    assert_eq!(gpu.after(1).gate(), 1.0);
}

#[test]
fn a_storm_of_application_faults_is_no_more_than_three() {
    let mut gpu = Watched::new();
    for _ in 0..10_000 {
        gpu.xid(45);
    }
    assert_eq!(gpu.gate(), 0.5);
    assert_eq!(gpu.memory.application.len(), APPLICATION_COUNT);
}

#[test]
fn ignored_events_say_nothing() {
    let mut gpu = Watched::new();
    for code in [37, 38, 66, 137, 154] {
        assert_eq!(gpu.xid(code).gate(), 1.0, "xid {code}");
    }
}

#[test]
fn a_second_context_switch_timeout_within_ten_minutes_is_fatal() {
    let mut gpu = Watched::new();
    gpu.xid(109).after(599_499);
    assert_eq!(gpu.xid(109).gate(), 0.0);
    let mut gpu = Watched::new();
    gpu.xid(109).after(600_000);
    assert_eq!(gpu.xid(109).gate(), 0.5, "later than that it is the first again");
}

#[test]
fn a_contained_double_bit_error_is_not_fatal_in_either_order() {
    assert_eq!(Watched::new().xid(48).xid(94).gate(), 0.5);
    assert_eq!(Watched::new().xid(94).xid(48).gate(), 0.5);
    let mut late = Watched::new();
    late.xid(48).after(61_000);
    assert_eq!(late.xid(94).gate(), 0.0, "a minute later it is another story (0 · 0.5)");
}

#[test]
fn links_matter_to_those_who_span_them() {
    let mut gpu = Watched::new();
    gpu.xid(74);
    assert_eq!((gpu.gate_of(false), gpu.gate_of(true)), (0.5, 0.0));
    gpu.after(600_000);
    assert_eq!((gpu.gate_of(false), gpu.gate_of(true)), (1.0, 0.0));
}

#[test]
fn a_bus_loss_is_not_covered_up_by_a_lesser_event() {
    let mut gpu = Watched::new();
    gpu.xid(79).xid(119);
    assert!(gpu.memory.is_bus_lost());
    let factors = gpu.memory.factors(gpu.report.received, false);
    assert_eq!(factors[0].measured, Some(79.0));
    assert_eq!(factors[0].clears, Clears::WithReset);
}

#[test]
fn the_same_event_in_the_next_report_is_not_a_second_one() {
    let mut gpu = Watched::new();
    gpu.xid(109);
    for _ in 0..10 {
        gpu.after(500);
    }
    assert_eq!(gpu.gate(), 0.5);
}

#[test]
fn an_event_in_the_same_millisecond_as_the_last_report_counts() {
    let mut gpu = Watched::new();
    gpu.gpu.xids = vec![XidEvent { code: 79, age: Span::ZERO, event_id: 1 }];
    gpu.observe();
    assert_eq!(gpu.gate(), 0.0);
}

#[test]
fn several_events_in_one_report_all_count() {
    let mut gpu = Watched::new();
    let event = |event_id, code| XidEvent { code, age: Span::ZERO, event_id };
    gpu.gpu.xids = vec![event(3, 13), event(1, 13), event(2, 13)];
    assert_eq!(gpu.after(500).gate(), 0.5);
}

#[test]
fn a_lost_gpu_that_returns_was_reset() {
    let mut gpu = Watched::new();
    gpu.xid(79);
    gpu.gpu.state = GpuState::Lost;
    gpu.after(500);
    gpu.gpu.state = GpuState::Ok;
    assert_eq!(gpu.after(500).gate(), 0.0, "first good report");
    assert_eq!(gpu.after(500).gate(), 0.0, "second");
    assert_eq!(gpu.after(500).gate(), 1.0, "third");
}

#[test]
fn a_call_that_hung_and_returned_is_no_reset() {
    let mut gpu = Watched::new();
    gpu.xid(119);
    gpu.gpu.state = GpuState::Hung;
    gpu.after(500);
    gpu.gpu.state = GpuState::Ok;
    gpu.after(500).after(500).after(500);
    assert_eq!(gpu.gate(), 0.0);
}

#[test]
fn an_unknown_state_is_no_recovery() {
    let mut gpu = Watched::new();
    gpu.gpu.state = GpuState::Lost;
    gpu.after(500);
    gpu.gpu.state = GpuState::Unknown;
    for _ in 0..10 {
        gpu.after(500);
    }
    assert_eq!(gpu.gate(), 0.0);
}

#[test]
fn a_flapping_gpu_starts_its_good_reports_over() {
    let mut gpu = Watched::new();
    for _ in 0..5 {
        gpu.gpu.state = GpuState::Lost;
        gpu.after(500);
        gpu.gpu.state = GpuState::Ok;
        assert_eq!(gpu.after(500).after(500).gate(), 0.0);
    }
}

#[test]
fn a_restarted_reporter_heals_only_what_the_driver_vouches_for() {
    for (action, expected) in [(Some(0), 1.0), (None, 0.0), (Some(1), 0.0)] {
        let mut gpu = Watched::new();
        gpu.xid(95);
        gpu.gpu.recovery_action = action;
        gpu.gpu.xids.clear();
        gpu.report.boot_id = "b".into();
        assert_eq!(gpu.after(500).gate(), expected, "{action:?}");
    }
}

#[test]
fn an_event_of_the_new_boot_latches_anew() {
    let mut gpu = Watched::new();
    gpu.xid(95);
    gpu.report.boot_id = "b".into();
    gpu.events = 0;
    assert_eq!(gpu.xid(95).gate(), 0.0);
}

#[test]
fn a_driver_that_was_gone_reset_its_gpus() {
    let mut gpu = Watched::new();
    gpu.xid(48);
    gpu.report.driver = DriverStatus::Absent;
    gpu.after(500);
    gpu.report.driver = DriverStatus::Ok;
    assert_eq!(gpu.after(500).gate(), 1.0);
}

#[test]
fn new_uncorrectable_errors_are_fatal_and_old_ones_are_history() {
    let mut gpu = Watched::new();
    gpu.gpu.ecc = None;
    gpu.memory = GpuMemory::default();
    assert_eq!(gpu.volatile(7).gate(), 1.0, "met at first sight");
    assert_eq!(gpu.volatile(7).gate(), 1.0);
    assert_eq!(gpu.volatile(8).gate(), 0.0);
    assert_eq!(gpu.after(3_600_000).gate(), 0.0);
    assert_eq!(gpu.volatile(0).gate(), 1.0, "the counter went back: a reset");
}

#[test]
fn old_events_at_first_sight_count_unless_the_driver_is_content() {
    let old = Span::secs(601);
    for (action, expected) in [(Some(0), 1.0), (None, 0.0)] {
        let mut gpu = Watched::new();
        gpu.memory = GpuMemory::default();
        gpu.gpu.recovery_action = action;
        assert_eq!(gpu.xid_aged(79, old).gate(), expected, "{action:?}");
    }
    let mut gpu = Watched::new();
    gpu.memory = GpuMemory::default();
    assert_eq!(gpu.xid_aged(79, Span::secs(600)).gate(), 0.0, "recent enough");
}

#[test]
fn hardware_slowdown_needs_two_of_three_samples() {
    let mut gpu = Watched::new();
    let check = |gpu: &mut Watched, bits, expected: bool| {
        assert_eq!(gpu.clocks(bits).memory.slowdown_since.is_some(), expected);
    };
    check(&mut gpu, 0x08, false); // 1 of 3
    check(&mut gpu, 0x00, false); // 1 of 3
    check(&mut gpu, 0x08, true); // 2 of 3
    check(&mut gpu, 0x00, false); // 1 of 3
    check(&mut gpu, 0x00, false);
    check(&mut gpu, 0x40, true); // thermal counts at once
    check(&mut gpu, 0x00, false);
    check(&mut gpu, 0x80, true); // power brake too
}

#[test]
fn the_start_of_a_slowdown_is_kept() {
    let mut gpu = Watched::new();
    let start = gpu.clocks(0x40).report.received;
    gpu.clocks(0x40).clocks(0x48);
    assert_eq!(gpu.memory.slowdown_since, Some(start));
}

#[test]
fn idle_application_and_display_bits_are_not_throttling() {
    let mut gpu = Watched::new();
    gpu.clocks(0x1 | 0x2 | 0x10 | 0x100).clocks(0x113);
    assert_eq!(gpu.memory.slowdown_since, None);
}

#[test]
fn an_operator_ends_all_verdicts() {
    let mut gpu = Watched::new();
    gpu.xid(95).xid(63).xid(13).xid(13).xid(13);
    gpu.memory.acknowledge();
    assert_eq!(gpu.gate(), 1.0);
}
