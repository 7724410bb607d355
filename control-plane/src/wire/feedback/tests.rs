use super::*;

fn limits() -> Limits {
    Limits::defaults().unwrap()
}

fn named(proxy_id: &str, services: usize) -> v1::Hello {
    v1::Hello {
        proxy_id: proxy_id.into(),
        services: (0..services).map(|i| format!("s{i}")).collect(),
        ..v1::Hello::default()
    }
}

#[test]
fn envoy_node_ids_are_fine_as_proxy_ids() {
    let id = "sidecar~10.0.0.1~llm-7d9f8b6c5d-abcde.production~production.svc.cluster.local/0a/cp";
    assert_eq!(hello(named(id, 0), &limits()).unwrap().proxy_id, id);
    for wrong in ["", "a\nb", &"x".repeat(257)] {
        assert!(hello(named(wrong, 0), &limits()).is_err(), "{wrong:?}");
    }
    assert!(hello(named(&"x".repeat(256), 0), &limits()).is_ok());
    // How much is kept of texts for people says nothing about ids.
    let limits = Limits { detail_bytes: 16, ..limits() };
    assert!(hello(named(id, 0), &limits).is_ok());
}

#[test]
fn services_of_a_hello_are_taken_at_the_limit_and_refused_above() {
    let limits = Limits { services_per_hello: 2, ..limits() };
    assert!(hello(named("p", 2), &limits).is_ok());
    let error = hello(named("p", 3), &limits).unwrap_err();
    assert_eq!(error, "hello.services: 3 is outside a length of 0..=2");
}

#[test]
fn texts_for_people_are_cut() {
    let long = v1::Hello { config_error: "é".repeat(200), ..named("p", 0) };
    // 256 bytes are 128 of two bytes each.
    assert_eq!(hello(long, &limits()).unwrap().config_error, "é".repeat(128));
}

#[test]
fn unknown_config_state_is_unknown() {
    for (state, expected) in [
        (1, ConfigState::Ok),
        (2, ConfigState::LastGood),
        (3, ConfigState::PassThrough),
        (0, ConfigState::Unknown),
        (99, ConfigState::Unknown),
        (-1, ConfigState::Unknown),
    ] {
        let said = v1::Hello { config_state: state, ..named("p", 0) };
        assert_eq!(hello(said, &limits()).unwrap().config, expected, "{state}");
    }
}

fn counts(services: usize, endpoints: usize, in_flight: u32) -> v1::Feedback {
    let endpoint = |i| v1::EndpointFeedback {
        endpoint: format!("1.1.1.1:{i}"),
        in_flight,
        ended_ok: 4,
        ..v1::EndpointFeedback::default()
    };
    let service = |i| v1::ServiceFeedback {
        service: format!("s{i}"),
        endpoints: (0..endpoints).map(endpoint).collect(),
        arrivals: 5,
    };
    v1::Feedback {
        sequence: 3,
        rung: 2,
        services: (0..services).map(service).collect(),
        ..v1::Feedback::default()
    }
}

#[test]
fn feedback_is_taken_at_the_limits_and_refused_above() {
    let limits = Limits { services: 2, endpoints_per_service: 2, ..limits() };
    for (message, expected) in [
        (counts(2, 2, 1_000_000), None),
        (counts(3, 0, 0), Some("feedback.services: 3 is outside a length of 0..=2")),
        (counts(1, 3, 0), Some("feedback.services[0].endpoints: 3 is outside a length of 0..=2")),
        (
            counts(1, 1, 1_000_001),
            Some("feedback.services[0].endpoints[0].in_flight: 1000001 is outside 0..=1000000"),
        ),
    ] {
        assert_eq!(feedback(message, &limits).err().as_deref(), expected);
    }
}

#[test]
fn counts_arrive_as_they_were_sent() {
    let f = feedback(counts(1, 1, 7), &limits()).unwrap();
    assert_eq!((f.sequence, f.rung, f.services[0].arrivals), (3, 2, 5));
    let e = &f.services[0].endpoints[0];
    assert_eq!((e.endpoint.as_str(), e.in_flight, e.ok), ("1.1.1.1:0", 7, 4));
}

#[test]
fn arrivals_are_taken_at_the_limit_and_refused_above() {
    for (arrivals, expected) in [
        (100_000_000, None),
        (100_000_001, Some("feedback.services[0].arrivals: 100000001 is outside 0..=100000000")),
        (
            u64::MAX,
            Some("feedback.services[0].arrivals: 18446744073709551615 is outside 0..=100000000"),
        ),
    ] {
        let mut message = counts(1, 1, 0);
        message.services[0].arrivals = arrivals;
        let refused = feedback(message, &limits()).err();
        assert_eq!(refused.as_deref(), expected);
    }
}
