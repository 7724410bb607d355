//! Messages and policy types say the same, and no bytes are too strange to read.

use proptest::prelude::*;
use prost::Message;
use std::sync::Arc;
use tidegate_filter::wire::{self, ConfigState, MESSAGE_BYTES_MAX, WireError};
use tidegate_policy::ladder::Rung;
use tidegate_policy::local::{
    EndpointCounts, EndpointFeedback, Feedback, ServiceCounts, ServiceFeedback, Totals,
    WorkerCounts,
};
use tidegate_policy::snapshot::{Extent, Fleet, Hard};
use tidegate_policy::units::{Span, Time};
use tidegate_proto::v1;

fn endpoint() -> v1::Endpoint {
    v1::Endpoint {
        address: "127.0.0.1:8000".into(),
        weight: 7_000,
        in_flight: Some(3),
        slots: Some(8),
        gate_pm: 900,
        success_bp: Some(9_990),
        age_ms: Some(120),
        hard: v1::HardState::Up.into(),
        node: "node-a".into(),
        gpu_type: "A100".into(),
        type_weight: 6_000,
        memory_free_bp: Some(4_000),
        healthy_for_ms: Some(1_000),
    }
}

fn update_of(endpoints: Vec<v1::Endpoint>) -> v1::FleetUpdate {
    v1::FleetUpdate {
        epoch: 4,
        instance: 9,
        period_ms: 500,
        proxies_live: 2,
        full: true,
        services: vec![v1::Service {
            name: "llm".into(),
            arrival_rate: Some(12.5),
            endpoints,
            endpoints_removed: vec!["127.0.0.1:8001".into()],
            mean_service_ms: Some(700),
        }],
        services_removed: vec!["old".into()],
    }
}

#[test]
fn an_update_survives_both_ways() {
    let message = update_of(vec![endpoint()]);
    let update = wire::update(&message.encode_to_vec()).unwrap();
    assert_eq!(v1::FleetUpdate::decode(&*wire::update_bytes(update)).unwrap(), message);
}

#[test]
fn absent_stays_unknown_and_an_empty_message_is_an_update() {
    let bare = v1::Endpoint { address: "127.0.0.1:1".into(), ..v1::Endpoint::default() };
    let update = wire::update(&update_of(vec![bare]).encode_to_vec()).unwrap();
    let e = &update.services[0].endpoints[0];
    assert_eq!((e.in_flight, e.slots, e.success, e.age), (None, None, None, None));
    assert_eq!((e.memory_free, e.healthy_for, e.hard), (None, None, Hard::Up));
    let empty = wire::update(&[]).unwrap();
    assert_eq!((empty.extent, empty.services.len()), (Extent::Changes, 0));
}

#[test]
fn states_of_an_endpoint() {
    for (hard, expected) in [
        (0, Hard::Up),
        (1, Hard::Up),
        (2, Hard::Draining),
        (3, Hard::Down),
        // Invented later: gate and weight still say what the endpoint may take.
        (4, Hard::Up),
        (i32::MIN, Hard::Up),
    ] {
        let message = update_of(vec![v1::Endpoint { hard, ..endpoint() }]);
        let update = wire::update(&message.encode_to_vec()).unwrap();
        assert_eq!(update.services[0].endpoints[0].hard, expected, "{hard}");
    }
}

#[test]
fn numbers_outside_their_range_move_to_the_bound() {
    for (given, weight, gate, basis_points) in [
        (0, 1, 0, 0),
        (1, 1, 1, 1),
        (1_000, 1_000, 1_000, 1_000),
        (1_001, 1_001, 1_000, 1_001),
        (10_000, 10_000, 1_000, 10_000),
        (u32::MAX, 10_000, 1_000, 10_000),
    ] {
        let message = v1::Endpoint {
            weight: given,
            type_weight: given,
            gate_pm: given,
            success_bp: Some(given),
            memory_free_bp: Some(given),
            ..endpoint()
        };
        let update = wire::update(&update_of(vec![message]).encode_to_vec()).unwrap();
        let e = &update.services[0].endpoints[0];
        assert_eq!((e.weight.get(), e.type_weight.get(), e.gate.get()), (weight, weight, gate));
        assert_eq!(e.success.unwrap().get(), basis_points);
        assert_eq!(e.memory_free.unwrap().get(), basis_points);
    }
}

#[test]
fn unknown_fields_are_skipped() {
    let mut bytes = update_of(vec![endpoint()]).encode_to_vec();
    let plain = wire::update(&bytes).unwrap();
    // Field 99 as varint, as bytes and as a fixed 64-bit number.
    for field in
        [&[0x98, 0x06, 0x01][..], &[0x9a, 0x06, 0x01, 0xff], &[0x99, 0x06, 1, 2, 3, 4, 5, 6, 7, 8]]
    {
        bytes.extend(field);
    }
    assert_eq!(wire::update(&bytes).unwrap(), plain);
}

#[test]
fn garbage_is_malformed_and_too_much_is_too_long() {
    for garbage in
        [&b"\xff\xfe\x00garbage"[..], b"\x32\xff\xff\xff\xff\x7f", b"\x32\x05abc", b"\x08"]
    {
        assert_eq!(wire::update(garbage), Err(WireError::Malformed));
    }
    // Padded by an unknown bytes field to the limit: tag of two bytes, length of four.
    let padded = |len: usize| {
        let mut bytes = vec![0x9a, 0x06];
        prost::encode_length_delimiter(len - 6, &mut bytes).unwrap();
        bytes.resize(len, 0);
        bytes
    };
    assert!(wire::update(&padded(MESSAGE_BYTES_MAX)).is_ok());
    assert_eq!(wire::update(&padded(MESSAGE_BYTES_MAX + 1)), Err(WireError::TooLong));
}

#[test]
fn five_thousand_endpoints_are_within_the_limit() {
    let endpoints = (0..5_000)
        .map(|i| v1::Endpoint {
            address: format!("10.0.{}.{}:8000", i / 250, i % 250),
            ..endpoint()
        })
        .collect();
    let bytes = update_of(endpoints).encode_to_vec();
    assert!(bytes.len() * 4 < MESSAGE_BYTES_MAX, "{}", bytes.len());
    let mut fleet = Fleet::new();
    fleet.apply(Time::ms(0), wire::update(&bytes).unwrap()).unwrap();
    let shared = wire::update_bytes(fleet.export(Time::ms(0)).unwrap());
    assert!(wire::update(&shared).is_ok());
}

fn totals(first: u64) -> Totals {
    Totals {
        started: first,
        ended_ok: first + 1,
        ended_busy: first + 2,
        ended_broken: first + 3,
        ended_cancelled: first + 4,
        ttft_ms_sum: first + 5,
        ttft_count: first + 6,
    }
}

#[test]
fn counts_come_back_as_they_went() {
    let endpoint = |address, in_flight, totals| EndpointCounts {
        address: Arc::from(address),
        in_flight,
        totals,
    };
    let counts = WorkerCounts {
        worker: 5,
        at: Time::ms(70),
        services: vec![ServiceCounts {
            service: Arc::from("llm"),
            arrivals: u64::MAX,
            endpoints: vec![
                endpoint("127.0.0.1:1", 2, totals(10)),
                endpoint("127.0.0.1:2", 0, totals(u64::from(u32::MAX) * 2)),
                endpoint("127.0.0.1:3", 0, Totals::default()),
            ],
        }],
    };
    let bytes = wire::counts_bytes(&counts);
    assert_eq!(wire::counts(5, Time::ms(70), &bytes), Some(counts.clone()));
    // Without totals, and without endpoints that have nothing in flight.
    let mut loads = counts;
    for service in &mut loads.services {
        service.endpoints.retain(|e| e.in_flight > 0);
        service.endpoints.iter_mut().for_each(|e| e.totals = Totals::default());
    }
    assert_eq!(wire::loads(5, Time::ms(70), &bytes), Some(loads));
    assert_eq!(wire::loads(5, Time::ms(70), b"\xff"), None);
    assert_eq!(wire::counts(5, Time::ms(70), b"\xff"), None);
}

#[test]
fn feedback_says_what_was_counted() {
    let feedback = Feedback {
        window: Span::ms(510),
        services: vec![ServiceFeedback {
            service: Arc::from("llm"),
            arrivals: 7,
            endpoints: vec![EndpointFeedback {
                address: Arc::from("127.0.0.1:1"),
                in_flight: 3,
                totals: totals(1),
            }],
        }],
        rung: Rung::TypeCapacity,
    };
    let bytes = wire::feedback_bytes(4, &feedback, ConfigState::LastGood, "why".into());
    let Some(v1::watch_request::Message::Feedback(message)) =
        v1::WatchRequest::decode(&*bytes).unwrap().message
    else {
        panic!("not feedback");
    };
    let expected = v1::Feedback {
        sequence: 4,
        window_ms: 510,
        services: vec![v1::ServiceFeedback {
            service: "llm".into(),
            arrivals: 7,
            endpoints: vec![v1::EndpointFeedback {
                endpoint: "127.0.0.1:1".into(),
                in_flight: 3,
                started: 1,
                ended_ok: 2,
                ended_busy: 3,
                ended_broken: 4,
                ended_cancelled: 5,
                ttft_ms_sum: 6,
                ttft_count: 7,
            }],
        }],
        config_state: ConfigState::LastGood.into(),
        config_error: "why".into(),
        rung: 3,
    };
    assert_eq!(message, expected);
}

#[test]
fn hello_names_the_proxy_and_its_services() {
    let bytes =
        wire::hello_bytes("node/1/2".into(), vec!["llm".into()], ConfigState::Ok, String::new());
    let Some(v1::watch_request::Message::Hello(hello)) =
        v1::WatchRequest::decode(&*bytes).unwrap().message
    else {
        panic!("not a hello");
    };
    assert_eq!((&*hello.proxy_id, &hello.services[..]), ("node/1/2", &["llm".to_string()][..]));
    assert_eq!(hello.filter_version, env!("CARGO_PKG_VERSION"));
    assert_eq!(hello.config_state(), ConfigState::Ok);
}

proptest! {
    #[test]
    fn no_bytes_panic_and_what_is_read_is_written_and_read_again(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = wire::counts(0, Time::ms(0), &bytes);
        let _ = wire::loads(0, Time::ms(0), &bytes);
        if let Ok(update) = wire::update(&bytes) {
            let again = wire::update(&wire::update_bytes(update.clone())).unwrap();
            // A rate that is no number is not equal to itself.
            prop_assert_eq!(format!("{again:?}"), format!("{update:?}"));
        }
    }

    #[test]
    fn a_message_cut_or_changed_anywhere_is_read_or_refused(cut in 0usize..120, at in 0usize..120, byte: u8) {
        let mut bytes = update_of(vec![endpoint()]).encode_to_vec();
        bytes.truncate(bytes.len().saturating_sub(cut));
        if let Some(changed) = bytes.get_mut(at) {
            *changed = byte;
        }
        if let Ok(update) = wire::update(&bytes) {
            let mut fleet = Fleet::new();
            let _ = fleet.apply(Time::ms(0), update);
        }
    }
}
