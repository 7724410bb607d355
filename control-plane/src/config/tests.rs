use tidegate_strict::{Field, Kind};

use super::*;

fn parse(yaml: &str) -> Result<Config, Vec<String>> {
    let value = text::yaml(yaml).unwrap();
    Config::parse(&value, Path::new("/etc/tidegate"))
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

const LEAST: &str = "version: 1\ndiscovery: {file: fleet.yaml}";

#[test]
fn least_configuration_takes_the_documented_defaults() {
    let config = parse(LEAST).unwrap();
    assert_eq!(config.grpc.to_string(), "127.0.0.1:9000");
    assert_eq!(config.admin.to_string(), "127.0.0.1:9001");
    assert_eq!(config.period, Duration::from_millis(500));
    assert_eq!(config.discovery.file, Path::new("/etc/tidegate/fleet.yaml"));
    let limits = &config.limits;
    assert_eq!(*limits, Limits::defaults().unwrap());
    assert_eq!(limits.message_bytes, 1 << 20);
    assert_eq!(limits.streams_per_connection, 16);
    assert_eq!(limits.connections, 4_000);
    assert_eq!(limits.streams_per_second, 50);
    assert_eq!(limits.gpus_per_report, 64);
    assert_eq!(limits.endpoints_per_service, 5_000);
    assert_eq!(limits.endpoints, 50_000);
    assert_eq!(limits.text_bytes, 64);
    assert_eq!(limits.event_pushes_per_second, 5);
    let timeouts = &config.timeouts;
    assert_eq!(timeouts.keepalive_interval, Duration::from_secs(10));
    assert_eq!(timeouts.keepalive_timeout, Duration::from_secs(10));
    assert_eq!(timeouts.slow_reader, Duration::from_secs(30));
    assert_eq!(timeouts.full_update, Duration::from_secs(30));
    assert_eq!(timeouts.stream_age, Duration::from_secs(1_800));
}

#[test]
fn absolute_path_of_the_discovery_file_stays() {
    let config = parse("version: 1\ndiscovery: {file: /srv/fleet.yaml}").unwrap();
    assert_eq!(config.discovery.file, Path::new("/srv/fleet.yaml"));
}

#[test]
fn fastest_reporter_is_within_the_default_rate() {
    // 100 ms, a tenth early each time: 1000 / 90 = 11.1 a second.
    let per_second = Limits::defaults().unwrap().reports_per_second;
    assert!(f64::from(per_second) >= 1_000.0 / 90.0);
}

/// Every whole number below `section`, at its bounds and one beyond.
fn check_bounds(section: &str) {
    let Some(Field { kind: Kind::Object(inner), .. }) =
        shape().fields.into_iter().find(|f| f.name == section)
    else {
        panic!("no section {section}")
    };
    let mut checked = 0;
    for field in inner.fields {
        let Kind::Int { min, max } = field.kind else { panic!("{} is no number", field.name) };
        let with = |value: i128| parse(&format!("{LEAST}\n{section}: {{{}: {value}}}", field.name));
        for inside in [min, max] {
            assert!(with(inside.into()).is_ok(), "{section}.{}: {inside}", field.name);
        }
        for outside in [i128::from(min) - 1, i128::from(max) + 1] {
            let expected = format!("{section}.{}: {outside} is outside {min}..={max}", field.name);
            assert_eq!(with(outside).unwrap_err(), [expected]);
        }
        checked += 1;
    }
    assert!(checked >= 9, "{checked}");
}

#[test]
fn every_limit_is_taken_at_its_bounds_and_refused_beyond() {
    check_bounds("limits");
}

#[test]
fn every_timeout_is_taken_at_its_bounds_and_refused_beyond() {
    check_bounds("timeouts");
}

#[test]
fn period_is_taken_at_its_bounds_and_refused_beyond() {
    for (period_ms, expected) in [(99, false), (100, true), (5_000, true), (5_001, false)] {
        let parsed = parse(&format!("{LEAST}\nperiod_ms: {period_ms}"));
        assert_eq!(parsed.is_ok(), expected, "{period_ms}");
    }
}

#[test]
fn all_errors_come_at_once() {
    let errors = parse(
        "version: 2\nlisten: {grpc: here, admn: 1}\nperiod_ms: 99\nlimits: {nodes: 0}\n\
         weighting: {prior: {sm_use: 2}, xids: [{code: 79, verdict: bad}]}\nextra: 1",
    )
    .unwrap_err();
    assert_eq!(
        errors,
        [
            "version: 2 is outside 1..=1",
            "listen.grpc: \"here\" is outside an address ip:port",
            "listen.admn: is not a known key; did you mean `admin`",
            "period_ms: 99 is outside 100..=5000",
            "discovery.file: is missing; expected text of 1..=4096 bytes",
            "weighting.prior.sm_use: 2 is outside 0..=1",
            "weighting.xids[0].verdict: \"bad\" is outside one of ignore, application, contained, \
             remap_pending, degraded, fatal_when_repeated, link, fatal, bus_lost",
            "limits.nodes: 0 is outside 1..=100000",
            "extra: is not a known key",
        ]
    );
}

#[test]
fn weighting_settings_arrive() {
    let config = parse(&format!(
        "{LEAST}\nweighting: {{capacities: [{{name_contains: L4, capacity: 0.4}}], \
         xids: [{{code: 31, verdict: fatal}}], ttft_objective_ms: 900}}"
    ))
    .unwrap();
    assert_eq!(config.weighting.capacities[0].name_contains, "L4");
    assert_eq!(config.weighting.xids.len(), 1);
    assert_eq!(config.weighting.ttft_objective.as_ms(), 900);
}

#[test]
fn prior_of_zeros_is_refused() {
    let zeros = "sm_use: 0, memory_free: 0, temperature: 0, memory_bandwidth: 0";
    let errors = parse(&format!("{LEAST}\nweighting: {{prior: {{{zeros}}}}}")).unwrap_err();
    assert_eq!(errors, ["weighting.prior: all weights are 0; at least one must be above"]);
}

#[test]
fn file_that_is_missing_or_broken_says_so() {
    let error = Config::load(Path::new("/nowhere/cp.yaml")).unwrap_err();
    assert!(error.lines()[0].starts_with("/nowhere/cp.yaml: "), "{error}");
}
