use alloc::vec;

use super::*;
use crate::{
    input::EngineKind,
    testkit::{GIB, best_gpu},
};

const NOW: Time = Time::ms(1_000_000);

fn report() -> NodeReport {
    NodeReport {
        received: NOW,
        interval: Span::ms(500),
        driver: DriverStatus::Ok,
        ..NodeReport::default()
    }
}

fn talking(engine: Option<Engine>, slots: Option<u32>) -> EndpointView {
    EndpointView { engine, slots, silence: 1.0, ..EndpointView::default() }
}

fn judge_gpu(report: &NodeReport, gpu: &GpuSample, engine: Option<Engine>) -> Verdict {
    let view = GpuView {
        uuid: gpu.uuid.clone(),
        reported: Some(ReportedGpu { report, gpu }),
        memory: None,
        driver: report.driver,
    };
    judge(NOW, &[view], talking(engine, None))
}

fn check(change: impl FnOnce(&mut GpuSample), gate: f64, reasons: &[GateReason]) {
    let mut gpu = best_gpu("g", 0);
    change(&mut gpu);
    let verdict = judge_gpu(&report(), &gpu, None);
    assert!((verdict.gate - gate).abs() < 1e-9, "{} is not {gate}: {verdict:?}", verdict.gate);
    let seen: Vec<GateReason> = verdict.factors.iter().map(|f| f.reason).collect();
    assert_eq!(seen, reasons);
}

#[test]
fn a_gpu_at_its_best_has_no_factor() {
    check(|_| {}, 1.0, &[]);
}

#[test]
fn temperature_margin_is_a_line_over_ten_degrees() {
    let margin =
        |t| move |g: &mut GpuSample| g.thermal.as_mut().unwrap().values.temperature_c = Some(t);
    // Slowdown at 90 °C.
    check(margin(79), 1.0, &[]);
    check(margin(80), 1.0, &[]);
    check(margin(81), 0.95, &[GateReason::TemperatureMargin]); // 0.5 + 0.5·9/10
    check(margin(85), 0.75, &[GateReason::TemperatureMargin]);
    check(margin(90), 0.5, &[GateReason::TemperatureMargin]);
    check(margin(120), 0.5, &[GateReason::TemperatureMargin]);
    check(margin(u32::MAX), 0.5, &[GateReason::TemperatureMargin]);
    let unknown = |g: &mut GpuSample| {
        let thermal = &mut g.thermal.as_mut().unwrap().values;
        (thermal.temperature_c, thermal.slowdown_c) = (Some(120), None);
    };
    check(unknown, 1.0, &[]);
}

#[test]
fn software_throttles_follow_the_clock() {
    let clocks = |bits, mhz| {
        move |g: &mut GpuSample| {
            let clocks = &mut g.clocks.as_mut().unwrap().values;
            (clocks.event_reasons, clocks.sm_mhz) = (Some(bits), mhz);
        }
    };
    // 987/1410 = 0.7; 282/1410 = 0.2; 14/1410 = 0.0099.
    check(clocks(0x20, Some(987)), 0.7, &[GateReason::SwThermal]);
    check(clocks(0x20, Some(282)), 0.5, &[GateReason::SwThermal]);
    check(clocks(0x20, None), 0.5, &[GateReason::SwThermal]);
    check(clocks(0x20, Some(1_410)), 1.0, &[]);
    check(clocks(0x04, Some(987)), 0.7, &[GateReason::PowerCap]);
    check(clocks(0x04, Some(282)), 0.2, &[GateReason::PowerCap]);
    check(clocks(0x04, Some(14)), 0.1, &[GateReason::PowerCap]);
    check(clocks(0x04, Some(1_410)), 1.0, &[]); // normal at full load
    check(clocks(0x04, None), 1.0, &[]);
    check(clocks(0x00, Some(282)), 1.0, &[]); // idle cards clock down
    check(clocks(0x24, Some(987)), 0.7, &[GateReason::SwThermal]); // one clock, one factor
    check(clocks(0x13, Some(282)), 1.0, &[]); // idle, application clocks, sync boost
}

#[test]
fn a_long_hardware_slowdown_counts_for_more() {
    let clocks = Clocks { event_reasons: Some(0x40), ..Clocks::default() };
    let gate = |secs| {
        let since = NOW.minus(Span::secs(secs));
        throttle_factor(NOW, clocks, Some(since)).unwrap().value
    };
    assert_eq!([gate(0), gate(30), gate(31)], [0.5, 0.5, 0.25]);
}

#[test]
fn the_memory_guard_is_for_servers_that_do_not_take_it_all() {
    let free =
        |bytes| move |g: &mut GpuSample| g.memory.as_mut().unwrap().values.free_bytes = Some(bytes);
    // 2 % of 80 GiB = 1.6 GiB.
    let bound = 80 * GIB / 50;
    check(free(bound + 1), 1.0, &[]);
    check(free(bound - 1), 0.2, &[GateReason::OutOfMemory]);
    check(free(0), 0.2, &[GateReason::OutOfMemory]);
    let mut gpu = best_gpu("g", 0);
    free(0)(&mut gpu);
    for (kind, gate) in [
        (EngineKind::Vllm, 1.0),
        (EngineKind::Sglang, 1.0),
        (EngineKind::Tgi, 1.0),
        (EngineKind::TrtLlm, 1.0),
        (EngineKind::Triton, 0.2),
        (EngineKind::Unknown, 0.2),
    ] {
        let engine = Some(Engine { kind, ..Engine::default() });
        assert_eq!(judge_gpu(&report(), &gpu, engine).gate, gate, "{kind:?}");
    }
}

#[test]
fn a_narrow_link_costs_its_part() {
    let width = |now, max| {
        move |g: &mut GpuSample| {
            let pcie = &mut g.pcie.as_mut().unwrap().values;
            (pcie.link_width, pcie.link_width_max) = (now, max);
        }
    };
    check(width(Some(16), Some(16)), 1.0, &[]);
    check(width(Some(8), Some(16)), 0.5, &[GateReason::PcieWidth]);
    check(width(Some(1), Some(16)), 0.1, &[GateReason::PcieWidth]); // 0.0625, at least 0.1
    check(width(Some(8), None), 1.0, &[]);
    check(width(Some(8), Some(0)), 1.0, &[]);
}

#[test]
fn the_drivers_own_wish_is_obeyed() {
    let action = |a| move |g: &mut GpuSample| g.recovery_action = a;
    check(action(None), 1.0, &[]);
    check(action(Some(0)), 1.0, &[]);
    check(action(Some(1)), 0.0, &[GateReason::RecoveryAction]);
    check(action(Some(2)), 0.0, &[GateReason::RecoveryAction]);
    check(action(Some(3)), 0.5, &[GateReason::RecoveryDrain]);
    check(action(Some(4)), 0.0, &[GateReason::RecoveryDrain]);
    check(action(Some(99)), 0.0, &[GateReason::RecoveryDrain]);
    let hard = |a| {
        let mut gpu = best_gpu("g", 0);
        gpu.recovery_action = Some(a);
        judge_gpu(&report(), &gpu, None).hard
    };
    assert_eq!([hard(1), hard(3), hard(4)], [HardState::Down, HardState::Up, HardState::Draining]);
}

#[test]
fn remapping_halves_while_pending_and_closes_when_failed() {
    let ecc = |pending, failed| {
        move |g: &mut GpuSample| {
            let ecc = &mut g.ecc.as_mut().unwrap().values;
            (ecc.is_remap_pending, ecc.is_remap_failed) = (pending, failed);
        }
    };
    check(ecc(Some(true), Some(false)), 0.5, &[GateReason::RemapPending]);
    check(ecc(Some(false), Some(true)), 0.0, &[GateReason::RemapFailed]);
    check(ecc(None, None), 1.0, &[]);
}

#[test]
fn what_only_a_reset_changes_does_not_fade() {
    // A reporter may read ECC and PCIe as seldom as every ten minutes.
    let seldom = Span::secs(600);
    let failed = |g: &mut GpuSample| {
        let ecc = g.ecc.as_mut().unwrap();
        (ecc.age, ecc.values.is_remap_failed) = (seldom, Some(true));
    };
    check(failed, 0.0, &[GateReason::RemapFailed]);
    let narrow = |g: &mut GpuSample| {
        let pcie = g.pcie.as_mut().unwrap();
        (pcie.age, pcie.values.link_width) = (seldom, Some(8));
    };
    check(narrow, 0.5, &[GateReason::PcieWidth]); // 8/16
}

#[test]
fn factors_of_one_gpu_multiply() {
    let change = |g: &mut GpuSample| {
        g.state = GpuState::Slow;
        g.pcie.as_mut().unwrap().values.link_width = Some(8);
        g.thermal.as_mut().unwrap().values.temperature_c = Some(90);
    };
    let reasons = [GateReason::GpuSlow, GateReason::TemperatureMargin, GateReason::PcieWidth];
    check(change, 0.125, &reasons); // 0.5·0.5·0.5
}

#[test]
fn a_jam_counts_once() {
    let gate = |kv_use_bp, waiting, slots| {
        let engine = Engine { kv_use_bp, waiting, ..Engine::default() };
        let view = talking(Some(engine), slots);
        judge(NOW, &[], EndpointView { queue_long_for: Span::secs(10), ..view }).gate
    };
    assert_eq!(gate(Some(9_499), Some(0), Some(8)), 1.0);
    assert_eq!(gate(Some(9_500), Some(0), Some(8)), 0.3);
    assert_eq!(gate(Some(0), Some(16), Some(8)), 1.0); // 2·8 is not more than 2·8
    assert_eq!(gate(Some(0), Some(17), Some(8)), 0.3);
    assert_eq!(gate(Some(10_000), Some(99), Some(8)), 0.3);
    assert_eq!(gate(None, Some(99), None), 1.0); // slots unknown
    assert_eq!(gate(None, Some(99), Some(0)), 1.0);
    assert_eq!(gate(None, None, None), 1.0);
}

#[test]
fn a_queue_that_is_long_for_a_moment_is_load() {
    let engine = Engine { waiting: Some(99), ..Engine::default() };
    let gate = |long_ms| {
        let queue_long_for = Span::ms(long_ms);
        let view = talking(Some(engine), Some(8));
        judge(NOW, &[], EndpointView { queue_long_for, ..view }).gate
    };
    assert_eq!([0, 9_999, 10_000, 60_000].map(gate), [1.0, 1.0, 0.3, 0.3]);
}

#[test]
fn old_values_have_no_factor_but_hold_the_gate() {
    let mut gpu = best_gpu("g", 0);
    let mut memory = GpuMemory::default();
    memory.clocks_seen = Some(NOW);
    gpu.clocks.as_mut().unwrap().values = Clocks { event_reasons: Some(0x20), ..Clocks::default() };
    gpu.clocks.as_mut().unwrap().age = Span::ms(1_501);
    let report = report();
    let view = GpuView {
        uuid: "g".into(),
        reported: Some(ReportedGpu { report: &report, gpu: &gpu }),
        memory: Some(&memory),
        driver: DriverStatus::Ok,
    };
    let verdict = judge(NOW, &[view], talking(None, None));
    assert_eq!((verdict.gate, verdict.is_held), (1.0, true));
}

#[test]
fn an_endpoint_without_gpus_or_engine_is_open() {
    let verdict = judge(NOW, &[], talking(None, None));
    assert_eq!((verdict.gate, verdict.hard, verdict.factors), (1.0, HardState::Up, vec![]));
}

#[test]
fn a_broken_gpu_on_a_draining_endpoint_is_down_not_draining() {
    let mut gpu = best_gpu("g", 0);
    gpu.recovery_action = Some(1);
    let report = report();
    let view = GpuView {
        uuid: "g".into(),
        reported: Some(ReportedGpu { report: &report, gpu: &gpu }),
        memory: None,
        driver: DriverStatus::Ok,
    };
    let draining = EndpointView { is_draining: true, ..talking(None, None) };
    assert_eq!(judge(NOW, core::slice::from_ref(&view), draining).hard, HardState::Down);
    assert_eq!(judge(NOW, &[], draining).hard, HardState::Draining);
}

#[test]
fn reason_names_are_distinct() {
    let mut names: Vec<_> = GateReason::ALL.iter().map(|r| r.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), GateReason::ALL.len());
}
