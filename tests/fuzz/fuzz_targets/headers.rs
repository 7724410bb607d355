//! Any bytes as endpoint list, cluster, host and path: totality, and that only plain addresses leave.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use tidegate_policy::{
    address,
    classify::{RequestFacts, cluster_matches, host_matches, takes},
    config::Matcher,
};

fuzz_target!(|bytes: &[u8]| {
    if let Some(list) = address::parse_list(bytes) {
        assert!((1..=address::LIST_LEN_MAX).contains(&list.len()));
        let list: Vec<Arc<str>> = list.into_iter().map(Arc::from).collect();
        let text = address::join(&list);
        assert!(text.bytes().all(|b| b"0123456789abcdef.:[],".contains(&b)), "{text}");
        let again = address::parse_list(text.as_bytes()).expect("what leaves can be read");
        assert!(again.iter().zip(&list).all(|(a, b)| **a == **b) && again.len() == list.len());
    }
    let middle = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len() / 2);
    let (a, b) = bytes.split_at(middle);
    let b = b.strip_prefix(b"\n").unwrap_or(b);
    let _ = cluster_matches(a, b);
    if host_matches(a, b) {
        assert!(host_matches(&a.to_ascii_uppercase(), b));
    }
    assert!(cluster_matches(a, a));
    assert!(host_matches(a, a));
    if let Ok(entry) = std::str::from_utf8(a) {
        let matcher = Matcher {
            clusters: vec![entry.into()],
            hosts: vec![entry.into()],
            path_prefixes: vec![entry.into()],
        };
        let facts =
            RequestFacts { cluster: Some(b), host: Some(b), path: Some(b), existing_list: Some(b) };
        let _ = takes(&matcher, &facts);
    }
});
