use std::path::PathBuf;

use super::*;

/// A folder of its own that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("fleet.yaml")
    }

    fn write(&self, content: &str) {
        std::fs::write(self.file(), content).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn limits() -> Limits {
    Limits::defaults().unwrap()
}

fn errors(yaml: &str, limits: &Limits) -> Vec<String> {
    let value = text::yaml(yaml).unwrap();
    parse(&value, limits).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

fn fleet(services: usize, endpoints: usize) -> String {
    let mut yaml = String::from("version: 1\nservices:\n");
    for s in 0..services {
        yaml.push_str(&format!("- name: s{s}\n  endpoints:\n"));
        for e in 0..endpoints {
            yaml.push_str(&format!("  - {{address: \"10.0.{s}.{e}:80\"}}\n"));
        }
    }
    yaml
}

#[test]
fn endpoints_come_with_node_gpus_and_capacity() {
    let value = text::yaml(
        "version: 1\nservices:\n- name: llm\n  endpoints:\n  - {address: \"127.0.0.1:8001\", \
         node: node-a, gpus: [0, GPU-1], capacity: 0.5, draining: true}\n  - {address: \"[::1]:80\"}",
    )
    .unwrap();
    let directory = parse(&value, &limits()).unwrap();
    let [full, least] = &directory.services[0].endpoints[..] else { panic!("{directory:?}") };
    assert_eq!(full.gpus, ["0", "GPU-1"]);
    assert_eq!(
        (full.node.as_deref(), full.capacity, full.draining),
        (Some("node-a"), Some(0.5), true)
    );
    assert_eq!((least.address.as_str(), &least.node), ("[::1]:80", &None));
}

#[test]
fn every_broken_rule_is_named() {
    let yaml = "version: 1\nservices:\n- name: llm\n  endpoints:\n  - {address: \"1.2.3.4:80\"}\n  \
                - {address: \"1.2.3.4:80\", gpus: [0]}\n- {name: llm}";
    assert_eq!(
        errors(yaml, &limits()),
        [
            "services[0].endpoints[1].address: 1.2.3.4:80 appears more than once in this service",
            "services[0].endpoints[1].gpus: needs `node`: an index or UUID is looked up on a node",
            "services[1].name: \"llm\" appears more than once",
        ]
    );
    assert_eq!(
        errors("version: 1\nservices: [{name: LLM, endpoints: [{address: host}]}]", &limits()),
        [
            "services[0].name: \"LLM\" is outside name of 1..=64 bytes from a-z, 0-9, `.`, `_`, `-`",
            "services[0].endpoints[0].address: \"host\" is outside an address ip:port",
        ]
    );
}

#[test]
fn address_that_the_filter_would_refuse_is_refused_here() {
    for (address, is_taken) in [
        ("1.2.3.4:1", true),
        ("1.2.3.4:0", false),
        ("[fe80::1]:80", true),
        ("[fe80::1%1]:80", false),
    ] {
        let yaml =
            format!("version: 1\nservices: [{{name: a, endpoints: [{{address: \"{address}\"}}]}}]");
        assert_eq!(errors(&yaml, &limits()).is_empty(), is_taken, "{address}");
    }
}

#[test]
fn one_address_in_two_services_is_fine() {
    let yaml = "version: 1\nservices:\n- {name: a, endpoints: [{address: \"1.2.3.4:80\"}]}\n\
                - {name: b, endpoints: [{address: \"1.2.3.4:80\"}]}";
    assert!(errors(yaml, &limits()).is_empty());
}

#[test]
fn counts_are_taken_at_the_limit_and_refused_above() {
    let limits = Limits { services: 2, endpoints_per_service: 3, endpoints: 5, ..limits() };
    for (services, endpoints, expected) in [
        (1, 3, ""),
        (1, 4, "services[0].endpoints: a list of 4 is outside a length of 0..=3"),
        (2, 2, ""),
        (2, 3, "services: 6 endpoints in all is outside 0..=5"),
        (3, 0, "services: a list of 3 is outside a length of 0..=2"),
    ] {
        let found = errors(&fleet(services, endpoints), &limits).join("; ");
        assert_eq!(found, expected, "{services} × {endpoints}");
    }
}

#[test]
fn bad_file_keeps_the_old_directory_and_says_why() {
    let folder = Folder::new("bad-file");
    let mut discovery = FileDiscovery::new(&folder.file(), &limits());
    assert!(discovery.look().is_none(), "no file yet");
    assert!(!discovery.status().current);
    folder.write(&fleet(1, 2));
    assert_eq!(discovery.look().unwrap().endpoint_count(), 2);
    for (content, expected) in [
        (
            "version: 1\nservices: [{name: llm, endpoints: [{}]}]",
            "endpoints[0].address: is missing",
        ),
        ("version: 1\nservices: [", "is not YAML"),
        ("", "is not an object"),
    ] {
        folder.write(content);
        assert!(discovery.look().is_none(), "{content}");
        let status = discovery.status();
        assert!(!status.current);
        assert!(status.errors.join(";").contains(expected), "{status:?}");
        assert_eq!((status.services, status.endpoints), (1, 2), "what is in force");
    }
    assert_eq!((discovery.status().loads, discovery.status().refusals), (1, 4));
    folder.write(&fleet(1, 3));
    assert_eq!(discovery.look().unwrap().endpoint_count(), 3);
    assert!(discovery.status().current);
    assert!(discovery.status().errors.is_empty());
}

#[test]
fn file_that_goes_away_changes_nothing_and_may_come_back() {
    let folder = Folder::new("gone-file");
    folder.write(&fleet(1, 1));
    let mut discovery = FileDiscovery::new(&folder.file(), &limits());
    assert!(discovery.look().is_some());
    std::fs::remove_file(folder.file()).unwrap();
    assert!(discovery.look().is_none());
    assert!(!discovery.status().current);
    folder.write(&fleet(1, 1));
    assert!(discovery.look().is_some());
    assert!(discovery.status().current);
}

#[test]
fn same_content_is_no_news() {
    let folder = Folder::new("same-file");
    folder.write(&fleet(1, 1));
    let mut discovery = FileDiscovery::new(&folder.file(), &limits());
    assert!(discovery.look().is_some());
    assert!(discovery.look().is_none());
    folder.write(&fleet(1, 1));
    assert!(discovery.look().is_none());
    assert_eq!(discovery.status().loads, 1);
}

#[test]
fn change_of_the_same_length_is_seen() {
    let folder = Folder::new("same-length");
    folder.write(&fleet(1, 1));
    let mut discovery = FileDiscovery::new(&folder.file(), &limits());
    assert!(discovery.look().is_some());
    folder.write(&fleet(1, 1).replace("10.0.0.0", "10.0.0.9"));
    assert_eq!(discovery.look().unwrap().services[0].endpoints[0].address, "10.0.0.9:80");
}

#[test]
fn file_is_read_at_the_size_limit_and_refused_above() {
    let folder = Folder::new("size");
    let content = fleet(1, 1);
    folder.write(&content);
    let at = Limits { discovery_bytes: content.len(), ..limits() };
    assert!(FileDiscovery::new(&folder.file(), &at).look().is_some());
    let below = Limits { discovery_bytes: content.len() - 1, ..limits() };
    let mut discovery = FileDiscovery::new(&folder.file(), &below);
    assert!(discovery.look().is_none());
    assert!(discovery.status().errors[0].contains("bytes is outside"), "{:?}", discovery.status());
}
