//! Messages survive the wire, and what a newer peer adds is harmless.

use proptest::prelude::*;
use prost::Message;
use tidegate_proto::v1::*;

/// A message as a newer peer would send it: the known bytes and a field nobody knows (number 900, a text).
fn with_unknown_field(mut bytes: Vec<u8>) -> Vec<u8> {
    // key = 900 << 3 | 2 = 7202 = 0xA2 0x38 as varint, then length 3.
    bytes.extend([0xA2, 0x38, 3, b'n', b'e', b'w']);
    bytes
}

fn full_gpu() -> Gpu {
    Gpu {
        uuid: "GPU-1".into(),
        index: 7,
        name: "NVIDIA A100".into(),
        pci_bus_id: "00000000:15:00.0".into(),
        architecture: "ampere".into(),
        state: GpuState::Ok.into(),
        state_detail: String::new(),
        utilization: Some(Utilization { age_ms: 3, sm_percent: Some(0), ..Default::default() }),
        memory: Some(Memory { age_ms: 3, total_bytes: Some(u64::MAX), ..Default::default() }),
        thermal: Some(Thermal { age_ms: 3, temperature_c: Some(61), ..Default::default() }),
        power: Some(Power { age_ms: 3, draw_mw: Some(310_000), ..Default::default() }),
        clocks: Some(Clocks { age_ms: 3, event_reasons: Some(0x48), ..Default::default() }),
        ecc: Some(Ecc { age_ms: 9_000, remap_pending: Some(false), ..Default::default() }),
        pcie: Some(Pcie { age_ms: 9_000, link_width: Some(16), ..Default::default() }),
        processes: Some(Processes {
            age_ms: 1,
            compute: vec![Process { pid: 4050, used_memory_bytes: None }],
        }),
        mig: Some(Mig {
            enabled: true,
            instances: vec![MigInstance { uuid: "MIG-1".into(), ..Default::default() }],
        }),
        xids: vec![XidEvent { code: 79, age_ms: 12, event_id: 1 }],
        recovery_action: Some(0),
        unsupported: vec!["nvmlDeviceGetEncoderUtilization".into()],
    }
}

fn full_report() -> ReportRequest {
    ReportRequest {
        node: "node-a".into(),
        boot_id: "00ff".into(),
        sequence: u64::MAX,
        part: "0,1".into(),
        reporter_version: "0.1.0".into(),
        driver: Some(DriverState { status: DriverStatus::Ok.into(), ..Default::default() }),
        gpus: vec![full_gpu()],
        workloads: vec![Workload {
            endpoint: "10.0.0.1:8000".into(),
            engine: Some(Engine {
                waiting: Some(0),
                kv_use_bp: Some(10_000),
                ..Default::default()
            }),
            ..Default::default()
        }],
        host: Some(Host { load_1m: Some(0.25), ..Default::default() }),
        interval_ms: 500,
        leaving: false,
    }
}

fn full_update() -> FleetUpdate {
    FleetUpdate {
        epoch: 9,
        instance: u64::MAX,
        period_ms: 500,
        proxies_live: 3,
        full: true,
        services: vec![Service {
            name: "llm".into(),
            arrival_rate: Some(0.0),
            endpoints: vec![Endpoint {
                address: "10.0.0.1:8000".into(),
                weight: 10_000,
                in_flight: Some(0),
                gate_pm: 1_000,
                hard: HardState::Up.into(),
                ..Default::default()
            }],
            endpoints_removed: vec![],
            mean_service_ms: None,
        }],
        services_removed: vec!["old".into()],
    }
}

#[test]
fn report_survives_the_wire() {
    let report = full_report();
    assert_eq!(ReportRequest::decode(report.encode_to_vec().as_slice()), Ok(report));
}

#[test]
fn update_survives_the_wire() {
    let update = full_update();
    assert_eq!(FleetUpdate::decode(update.encode_to_vec().as_slice()), Ok(update));
}

#[test]
fn watch_request_survives_the_wire_in_both_forms() {
    let hello = Hello { proxy_id: "p".into(), services: vec!["llm".into()], ..Default::default() };
    let feedback = Feedback {
        sequence: 1,
        services: vec![ServiceFeedback {
            service: "llm".into(),
            endpoints: vec![EndpointFeedback {
                endpoint: "a:1".into(),
                in_flight: 3,
                ..Default::default()
            }],
            arrivals: 12,
        }],
        ..Default::default()
    };
    for message in
        [watch_request::Message::Hello(hello), watch_request::Message::Feedback(feedback)]
    {
        let request = WatchRequest { message: Some(message) };
        assert_eq!(WatchRequest::decode(request.encode_to_vec().as_slice()), Ok(request));
    }
}

#[test]
fn absent_stays_apart_from_zero() {
    let zero = Utilization { age_ms: 0, sm_percent: Some(0), ..Default::default() };
    let decoded = Utilization::decode(zero.encode_to_vec().as_slice()).unwrap();
    assert_eq!((decoded.sm_percent, decoded.memory_percent), (Some(0), None));
}

#[test]
fn unknown_fields_are_skipped_on_every_top_message() {
    let report = full_report();
    let update = full_update();
    let response = ReportResponse { sequence: 4, interval_ms: Some(200), ..Default::default() };
    let bytes = with_unknown_field(report.encode_to_vec());
    assert_eq!(ReportRequest::decode(bytes.as_slice()), Ok(report));
    let bytes = with_unknown_field(update.encode_to_vec());
    assert_eq!(FleetUpdate::decode(bytes.as_slice()), Ok(update));
    let bytes = with_unknown_field(response.encode_to_vec());
    assert_eq!(ReportResponse::decode(bytes.as_slice()), Ok(response));
}

#[test]
fn unknown_form_of_a_watch_request_reads_as_none() {
    // Field 9 of the oneof does not exist here: key = 9 << 3 | 2 = 74, length 0.
    assert_eq!(WatchRequest::decode([74, 0].as_slice()), Ok(WatchRequest { message: None }));
}

#[test]
fn unknown_enum_values_are_kept_as_numbers_and_read_as_unspecified() {
    let gpu = Gpu { state: 77, ..Default::default() };
    let decoded = Gpu::decode(gpu.encode_to_vec().as_slice()).unwrap();
    assert_eq!((decoded.state, decoded.state()), (77, GpuState::Unspecified));
    let endpoint = Endpoint { hard: -1, ..Default::default() };
    let decoded = Endpoint::decode(endpoint.encode_to_vec().as_slice()).unwrap();
    assert_eq!((decoded.hard, decoded.hard()), (-1, HardState::Unspecified));
    let driver = DriverState { status: 1_000, ..Default::default() };
    let decoded = DriverState::decode(driver.encode_to_vec().as_slice()).unwrap();
    assert_eq!(decoded.status(), DriverStatus::Unspecified);
}

#[test]
fn cut_short_message_is_an_error_and_not_a_half_report() {
    let bytes = full_report().encode_to_vec();
    assert!(ReportRequest::decode(&bytes[..bytes.len() - 1]).is_err());
}

proptest! {
    #[test]
    fn decoding_any_bytes_is_total(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = ReportRequest::decode(bytes.as_slice());
        let _ = FleetUpdate::decode(bytes.as_slice());
        let _ = WatchRequest::decode(bytes.as_slice());
        let _ = ReportResponse::decode(bytes.as_slice());
    }

    #[test]
    fn flipping_a_byte_never_panics(at in 0usize..200, to in any::<u8>()) {
        let mut bytes = full_update().encode_to_vec();
        let at = at % bytes.len();
        bytes[at] = to;
        let _ = FleetUpdate::decode(bytes.as_slice());
    }
}
