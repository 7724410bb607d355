//! Any bytes as the filter's configuration: errors or a configuration within its ranges.
#![no_main]

use std::rc::Rc;

use libfuzzer_sys::fuzz_target;
use tidegate_policy::{chance::Chance, classify::RequestFacts, config, gate::Gate, units::Time};
use tidegate_strict::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    match config::parse(&value) {
        Ok(config) => {
            assert_eq!(config.version, 1);
            assert!((1..=config::SERVICES_MAX).contains(&config.services.len()));
            for service in &config.services {
                assert!(!service.matcher.is_empty());
                assert!(service.retries <= 5 && service.slow_start.as_ms() <= 600_000);
            }
            // It works without a snapshot: every request passes.
            let mut gate = Gate::new(Time::ms(0), 1, Rc::new(config));
            let facts =
                RequestFacts { cluster: Some(bytes), path: Some(b"/"), ..RequestFacts::default() };
            let _ = gate.on_request(Time::ms(1), &mut Chance::seeded(1), &facts);
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                assert!(!error.to_string().is_empty());
            }
        }
    }
});
