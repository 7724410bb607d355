use proptest::prelude::*;
use prost::Message;

use super::*;

fn limits() -> Limits {
    Limits::defaults().unwrap()
}

fn report(change: impl FnOnce(&mut v1::ReportRequest)) -> v1::ReportRequest {
    let gpu = v1::Gpu { uuid: "GPU-1".into(), name: "NVIDIA L4".into(), ..v1::Gpu::default() };
    let workload = v1::Workload {
        endpoint: "127.0.0.1:8001".into(),
        service: "llm".into(),
        gpu_uuids: vec!["GPU-1".into()],
        ..v1::Workload::default()
    };
    let mut report = v1::ReportRequest {
        node: "node-a".into(),
        boot_id: "0af3".into(),
        sequence: 1,
        interval_ms: 500,
        gpus: vec![gpu],
        workloads: vec![workload],
        ..v1::ReportRequest::default()
    };
    change(&mut report);
    report
}

fn taken(report: v1::ReportRequest) -> Result<Offer, String> {
    offer(report, Time::ms(77), &limits())
}

/// The reason of a refusal, or nothing.
fn refused(change: impl FnOnce(&mut v1::ReportRequest)) -> String {
    taken(report(change)).err().unwrap_or_default()
}

#[test]
fn whole_report_arrives() {
    let offer = taken(report(|r| {
        r.part = "0".into();
        r.leaving = true;
        r.driver = Some(v1::DriverState {
            status: v1::DriverStatus::Ok.into(),
            driver_version: "580.95".into(),
            gpus_expected: Some(8),
            ..v1::DriverState::default()
        });
        r.gpus[0].state = v1::GpuState::Slow.into();
        r.gpus[0].utilization = Some(v1::Utilization {
            age_ms: 20,
            sm_percent: Some(83),
            ..v1::Utilization::default()
        });
        r.gpus[0].xids = vec![v1::XidEvent { code: 79, age_ms: 5, event_id: 2 }];
        r.workloads[0].engine = Some(v1::Engine {
            age_ms: 30,
            kind: "vllm".into(),
            running: Some(4),
            waiting: Some(1),
            ..v1::Engine::default()
        });
        r.host = Some(v1::Host { cpu_use_bp: Some(2_500), ..v1::Host::default() });
    }))
    .unwrap();
    assert_eq!((offer.node.as_str(), offer.part.as_str(), offer.sequence), ("node-a", "0", 1));
    assert_eq!((offer.detail.leaving, offer.detail.gpus_expected), (true, Some(8)));
    assert_eq!(offer.detail.host.unwrap().cpu_use_bp, Some(2_500));
    let r = &offer.report;
    assert_eq!((r.received, r.interval, r.driver), (Time::ms(77), Span::ms(500), DriverStatus::Ok));
    let gpu = &r.gpus[0];
    assert_eq!((gpu.state, gpu.xids[0].code), (GpuState::Slow, 79));
    assert_eq!(gpu.utilization.unwrap().age, Span::ms(20));
    assert_eq!(gpu.utilization.unwrap().values.sm_percent, Some(83));
    assert!(gpu.memory.is_none(), "unknown, not zero");
    let engine = r.workloads[0].engine.unwrap();
    assert_eq!((engine.values.kind, engine.values.running), (EngineKind::Vllm, Some(4)));
}

#[test]
fn counts_are_taken_at_the_limit_and_refused_above() {
    let limits =
        Limits { gpus_per_report: 2, workloads_per_report: 1, items_per_gpu: 3, ..limits() };
    let with = |gpus: u32, workloads: usize, xids: usize, uuids: usize| {
        let report = report(|r| {
            r.gpus = (0..gpus)
                .map(|i| v1::Gpu {
                    uuid: format!("GPU-{i}"),
                    index: i,
                    xids: vec![v1::XidEvent::default(); xids],
                    ..v1::Gpu::default()
                })
                .collect();
            let mut workload = r.workloads[0].clone();
            workload.gpu_uuids = (0..uuids).map(|i| format!("GPU-{i}")).collect();
            r.workloads = vec![workload; workloads];
        });
        offer(report, Time::ms(0), &limits).err().unwrap_or_default()
    };
    assert_eq!(with(2, 1, 3, 2), "");
    assert_eq!(with(3, 1, 0, 0), "gpus: 3 is outside a length of 0..=2");
    assert_eq!(with(2, 2, 0, 0), "workloads: 2 is outside a length of 0..=1");
    assert_eq!(with(1, 1, 4, 0), "gpus[0].xids: 4 is outside a length of 0..=3");
    assert_eq!(with(1, 1, 0, 3), "workloads[0].gpu_uuids: 3 is outside a length of 0..=2");
}

#[test]
fn gpus_are_taken_up_to_64_by_default() {
    let with = |count: u32| {
        refused(|r| {
            r.gpus = (0..count)
                .map(|i| v1::Gpu { uuid: format!("GPU-{i}"), index: i, ..v1::Gpu::default() })
                .collect();
        })
    };
    assert_eq!(with(64), "");
    assert_eq!(with(65), "gpus: 65 is outside a length of 0..=64");
}

#[test]
fn numbers_are_taken_at_their_bounds_and_refused_beyond() {
    type Change = fn(&mut v1::ReportRequest, u64);
    let cases: [(&str, u64, Change); 10] = [
        ("gpus[0].index", 1_023, |r, v| r.gpus[0].index = v as u32),
        ("gpus[0].utilization.sm_percent", 100, |r, v| {
            r.gpus[0].utilization =
                Some(v1::Utilization { sm_percent: Some(v as u32), ..Default::default() });
        }),
        ("gpus[0].utilization.decoder_percent", 100, |r, v| {
            r.gpus[0].utilization =
                Some(v1::Utilization { decoder_percent: Some(v as u32), ..Default::default() });
        }),
        ("gpus[0].memory.total_bytes", 1 << 50, |r, v| {
            r.gpus[0].memory = Some(v1::Memory { total_bytes: Some(v), ..Default::default() });
        }),
        ("gpus[0].memory.free_bytes", 1_000, |r, v| {
            let total_bytes = Some(1_000);
            r.gpus[0].memory =
                Some(v1::Memory { total_bytes, free_bytes: Some(v), ..Default::default() });
        }),
        ("gpus[0].thermal.temperature_c", 250, |r, v| {
            r.gpus[0].thermal =
                Some(v1::Thermal { temperature_c: Some(v as u32), ..Default::default() });
        }),
        ("gpus[0].power.draw_mw", 10_000_000, |r, v| {
            r.gpus[0].power = Some(v1::Power { draw_mw: Some(v as u32), ..Default::default() });
        }),
        ("gpus[0].clocks.sm_mhz", 100_000, |r, v| {
            r.gpus[0].clocks = Some(v1::Clocks { sm_mhz: Some(v as u32), ..Default::default() });
        }),
        ("gpus[0].pcie.link_width", 64, |r, v| {
            r.gpus[0].pcie = Some(v1::Pcie { link_width: Some(v as u32), ..Default::default() });
        }),
        ("workloads[0].engine.kv_use_bp", 10_000, |r, v| {
            r.workloads[0].engine =
                Some(v1::Engine { kv_use_bp: Some(v as u32), ..Default::default() });
        }),
    ];
    for (path, max, change) in cases {
        assert_eq!(refused(|r| change(r, max)), "", "{path} at {max}");
        let expected = format!("{path}: {} is outside 0..={max}", max + 1);
        assert_eq!(refused(|r| change(r, max + 1)), expected);
    }
}

#[test]
fn interval_is_taken_at_its_bounds_and_absent_is_the_usual_one() {
    for (ms, expected) in [(99, false), (100, true), (60_000, true), (60_001, false)] {
        assert_eq!(refused(|r| r.interval_ms = ms).is_empty(), expected, "{ms}");
    }
    let offer = taken(report(|r| r.interval_ms = 0)).unwrap();
    assert_eq!(offer.report.interval, Span::ms(500));
}

#[test]
fn numbers_that_are_none_are_refused() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e10] {
        let reason = refused(|r| {
            let engine = v1::Engine { tokens_per_second: Some(value), ..v1::Engine::default() };
            r.workloads[0].engine = Some(engine);
        });
        assert!(reason.starts_with("workloads[0].engine.tokens_per_second: "), "{reason}");
    }
    // The driver's "not available" for 64-bit values.
    let sentinel = refused(|r| {
        r.gpus[0].memory =
            Some(v1::Memory { used_bytes: Some(u64::MAX >> 1), ..Default::default() });
    });
    assert!(sentinel.starts_with("gpus[0].memory.used_bytes: 9223372036854775807"), "{sentinel}");
}

#[test]
fn names_have_a_charset_and_a_length() {
    let long = "n".repeat(65);
    for wrong in ["", "a b", "a\n", "né", "a\"b", "<x>", long.as_str()] {
        assert!(refused(|r| r.node = wrong.into()).starts_with("node: "), "{wrong:?}");
        assert!(refused(|r| r.boot_id = wrong.into()).starts_with("boot_id: "), "{wrong:?}");
        assert!(refused(|r| r.gpus[0].uuid = wrong.into()).starts_with("gpus[0].uuid: "));
    }
    assert_eq!(refused(|r| r.node = "n".repeat(64)), "");
    assert_eq!(refused(|r| r.gpus[0].name = "x".repeat(64)), "");
    assert!(refused(|r| r.gpus[0].name = "x".repeat(65)).starts_with("gpus[0].name: "));
    assert!(refused(|r| r.workloads[0].service = "a b".into()).starts_with("workloads[0].service"));
}

#[test]
fn endpoint_of_a_workload_is_an_address() {
    for wrong in ["", "host:80", "1.2.3.4", "1.2.3.4:99999", "1.2.3.4:80\r\nx: y"] {
        let reason = refused(|r| r.workloads[0].endpoint = wrong.into());
        assert!(reason.ends_with("is outside an address ip:port"), "{reason}");
    }
}

#[test]
fn same_gpu_twice_is_refused() {
    let reason = refused(|r| r.gpus.push(r.gpus[0].clone()));
    assert_eq!(reason, "gpus[1].uuid: GPU-1 is outside names that are listed once");
}

#[test]
fn enum_values_of_a_newer_reporter_are_unknown() {
    for value in [6, 99, -1, i32::MAX] {
        let offer = taken(report(|r| {
            r.gpus[0].state = value;
            r.driver = Some(v1::DriverState { status: value, ..v1::DriverState::default() });
            r.workloads[0].engine =
                Some(v1::Engine { kind: "newer".into(), ..v1::Engine::default() });
        }))
        .unwrap();
        assert_eq!(offer.report.gpus[0].state, GpuState::Unknown);
        assert_eq!(offer.report.driver, DriverStatus::Unknown);
        assert_eq!(offer.report.workloads[0].engine.unwrap().values.kind, EngineKind::Unknown);
    }
}

#[test]
fn several_errors_come_at_once_and_the_reason_is_bounded() {
    let reason = refused(|r| {
        r.gpus[0].index = 5_000;
        r.gpus[0].uuid = "a b".into();
    });
    assert_eq!(reason.matches("gpus[0].").count(), 2, "{reason}");
    let many = refused(|r| {
        for gpu in 0..60 {
            r.gpus.push(v1::Gpu {
                uuid: "x y".repeat(20),
                index: 9_000 + gpu,
                ..v1::Gpu::default()
            });
        }
    });
    assert!(many.len() <= 512, "{}", many.len());
}

#[test]
fn details_for_people_are_cut_not_refused() {
    let offer = taken(report(|r| {
        let detail = "x".repeat(10_000);
        r.driver = Some(v1::DriverState { detail, ..v1::DriverState::default() });
        r.reporter_version = "v".repeat(10_000);
    }))
    .unwrap();
    assert_eq!(offer.detail.driver_detail.len(), 256);
    assert_eq!(offer.detail.reporter_version.len(), 64);
}

#[test]
fn address_has_one_spelling() {
    let offer = taken(report(|r| r.workloads[0].endpoint = "[0:0::1]:80".into())).unwrap();
    assert_eq!(offer.report.workloads[0].endpoint, "[::1]:80");
}

#[test]
fn fields_of_a_newer_reporter_are_harmless() {
    let mut bytes = report(|_| ()).encode_to_vec();
    // Field 99 as a number, and field 100 as bytes.
    bytes.extend([0x98, 0x06, 0x2a, 0xa2, 0x06, 0x03, b'n', b'e', b'w']);
    let decoded = v1::ReportRequest::decode(&bytes[..]).unwrap();
    assert_eq!(taken(decoded).unwrap(), taken(report(|_| ())).unwrap());
}

proptest! {
    /// Bytes that decode are refused or taken, and nothing else happens.
    #[test]
    fn any_bytes_are_refused_or_taken(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
        at in any::<prop::sample::Index>(),
    ) {
        // A good report with a piece of noise in it reaches further than noise alone.
        let mut mixed = report(|_| ()).encode_to_vec();
        let at = at.index(mixed.len());
        mixed.splice(at..(at + bytes.len()).min(mixed.len()), bytes.iter().copied());
        for bytes in [bytes, mixed] {
            if let Ok(decoded) = v1::ReportRequest::decode(&bytes[..]) {
                let _ = taken(decoded);
            }
            if let Ok(decoded) = v1::Feedback::decode(&bytes[..]) {
                let _ = super::super::feedback(decoded, &limits());
            }
        }
    }
}
