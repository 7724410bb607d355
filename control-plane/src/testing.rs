//! A core for unit tests: no listener, no file.

use std::{path::Path, sync::Arc};

use crate::{
    config::Config,
    core::Core,
    discovery::{Directory, DiscoveryStatus, EndpointEntry, ServiceEntry},
    text,
};

/// A configuration with `more` lines of YAML.
pub(crate) fn config(more: &str) -> Config {
    let yaml = format!("version: 1\ndiscovery: {{file: fleet.yaml}}\n{more}");
    Config::parse(&text::yaml(&yaml).unwrap(), Path::new("")).unwrap()
}

/// A core whose discovery names service `llm` with these endpoints.
pub(crate) fn core(more: &str, endpoints: &[&str]) -> Arc<Core> {
    let core = Core::new(config(more));
    direct(&core, endpoints);
    core
}

/// Replaces what discovery names.
pub(crate) fn direct(core: &Core, endpoints: &[&str]) {
    let endpoint =
        |address: &&str| EndpointEntry { address: (*address).into(), ..Default::default() };
    let service =
        ServiceEntry { name: "llm".into(), endpoints: endpoints.iter().map(endpoint).collect() };
    let status = DiscoveryStatus { current: true, loads: 1, ..DiscoveryStatus::default() };
    core.discovered(&status, Some(Directory { services: vec![service] }));
}
