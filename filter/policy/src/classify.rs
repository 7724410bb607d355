//! Which service a request belongs to.
//!
//! Inputs are raw bytes, since header values need not be UTF-8. The first service in configuration
//! order whose every non-empty matcher list matches takes the request. Cluster names match exactly;
//! a configured name without `|` also matches the host part of Istio's `outbound|port|subset|host`,
//! so one configuration serves standalone Envoy and a mesh. Hosts match in any case; a configured
//! host without a port matches every port.

use crate::config::{Config, Matcher};

/// What the filter read of a request; `None` where the header or property is absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestFacts<'a> {
    /// Envoy cluster of the chosen route.
    pub cluster: Option<&'a [u8]>,
    /// `:authority`.
    pub host: Option<&'a [u8]>,
    /// `:path`.
    pub path: Option<&'a [u8]>,
    /// Endpoint list that an earlier filter set; the listener has removed a client's own.
    pub existing_list: Option<&'a [u8]>,
}

/// Index of the service in `config` that takes the request.
#[must_use]
pub fn classify(config: &Config, facts: &RequestFacts<'_>) -> Option<usize> {
    config.services.iter().position(|service| takes(&service.matcher, facts))
}

/// Whether every non-empty list of `matcher` matches. An empty matcher takes nothing.
#[must_use]
pub fn takes(matcher: &Matcher, facts: &RequestFacts<'_>) -> bool {
    let fits = |entries: &[alloc::string::String],
                found: Option<&[u8]>,
                rule: fn(&[u8], &[u8]) -> bool| {
        entries.is_empty()
            || found.is_some_and(|found| entries.iter().any(|e| rule(e.as_bytes(), found)))
    };
    !matcher.is_empty()
        && fits(&matcher.clusters, facts.cluster, cluster_matches)
        && fits(&matcher.hosts, facts.host, host_matches)
        && fits(&matcher.path_prefixes, facts.path, |prefix, path| path.starts_with(prefix))
}

/// Whether the configured `wanted` names the Envoy cluster `found`.
#[must_use]
pub fn cluster_matches(wanted: &[u8], found: &[u8]) -> bool {
    if wanted == found {
        return true;
    }
    !wanted.contains(&b'|') && istio_host(found).is_some_and(|host| host == wanted)
}

/// The host of `outbound|port|subset|host`.
fn istio_host(cluster: &[u8]) -> Option<&[u8]> {
    let mut parts = cluster.split(|&b| b == b'|');
    if parts.next() != Some(b"outbound".as_slice()) {
        return None;
    }
    let (port, _subset, host) = (parts.next()?, parts.next()?, parts.next()?);
    let is_port = !port.is_empty() && port.iter().all(u8::is_ascii_digit);
    (is_port && !host.is_empty() && parts.next().is_none()).then_some(host)
}

/// Whether the configured `wanted` names the `:authority` `found`.
#[must_use]
pub fn host_matches(wanted: &[u8], found: &[u8]) -> bool {
    let (wanted_name, wanted_port) = split_port(wanted);
    let (found_name, found_port) = split_port(found);
    wanted_name.eq_ignore_ascii_case(found_name)
        && (wanted_port.is_none() || wanted_port == found_port)
}

/// Name and port; a trailing dot of the name is dropped, an address in brackets keeps them.
fn split_port(host: &[u8]) -> (&[u8], Option<&[u8]>) {
    let colon = host.iter().rposition(|&b| b == b':');
    let (name, port) = match colon {
        Some(at) => match (host.get(..at), host.get(at.saturating_add(1)..)) {
            (Some(name), Some(port))
                if !port.is_empty()
                    && port.iter().all(u8::is_ascii_digit)
                    // Without brackets, a second colon means a bare IPv6 address.
                    && (!name.contains(&b':') || name.ends_with(b"]")) =>
            {
                (name, Some(port))
            }
            _ => (host, None),
        },
        None => (host, None),
    };
    (name.strip_suffix(b".").unwrap_or(name), port)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn clusters() {
        for (wanted, found, expected) in [
            ("llm", "llm", true),
            ("llm", "LLM", false),
            ("llm", "llm2", false),
            (
                "outbound|8000||llm.ns.svc.cluster.local",
                "outbound|8000||llm.ns.svc.cluster.local",
                true,
            ),
            ("outbound|8000||llm.ns", "outbound|8001||llm.ns", false),
            ("llm.ns.svc.cluster.local", "outbound|8000||llm.ns.svc.cluster.local", true),
            ("llm.ns.svc.cluster.local", "outbound|8000|v2|llm.ns.svc.cluster.local", true),
            ("llm", "outbound|8000||llm.ns.svc.cluster.local", false),
            ("llm", "inbound|8000||llm", false),
            ("llm", "outbound|8000||llm|x", false),
            ("llm", "outbound|http||llm", false),
            ("llm", "outbound|||llm", false),
            ("", "outbound|80||", false),
        ] {
            assert_eq!(cluster_matches(wanted.as_bytes(), found.as_bytes()), expected, "{found}");
        }
    }

    #[test]
    fn hosts() {
        for (wanted, found, expected) in [
            ("llm.example", "llm.example", true),
            ("llm.example", "LLM.Example", true),
            ("llm.example", "llm.example:8080", true),
            ("llm.example:8080", "llm.example:8080", true),
            ("llm.example:8080", "llm.example:80", false),
            ("llm.example:8080", "llm.example", false),
            ("llm.example", "llm.example.", true),
            ("llm.example", "llm.example.:80", true),
            ("llm.example", "xllm.example", false),
            ("llm.example", "llm.example.evil", false),
            ("llm.example", "llm.example:", false),
            ("[::1]", "[::1]:80", true),
            ("::1", "::1", true),
            ("::1", "::1:80", false),
        ] {
            assert_eq!(host_matches(wanted.as_bytes(), found.as_bytes()), expected, "{found}");
        }
    }

    #[test]
    fn every_non_empty_list_must_match() {
        let matcher = Matcher {
            clusters: vec!["llm".into()],
            hosts: vec!["llm.example".into()],
            path_prefixes: vec!["/v1/".into(), "/v2/".into()],
        };
        let good = RequestFacts {
            cluster: Some(b"llm"),
            host: Some(b"llm.example"),
            path: Some(b"/v2/chat"),
            existing_list: None,
        };
        assert!(takes(&matcher, &good));
        assert!(!takes(&matcher, &RequestFacts { cluster: Some(b"x"), ..good }));
        assert!(!takes(&matcher, &RequestFacts { host: None, ..good }));
        assert!(!takes(&matcher, &RequestFacts { path: Some(b"/v3/"), ..good }));
        let by_path = Matcher { path_prefixes: vec!["/v1".into()], ..Matcher::default() };
        assert!(takes(&by_path, &RequestFacts { path: Some(b"/v1\xff"), ..Default::default() }));
    }

    #[test]
    fn an_empty_matcher_takes_nothing() {
        assert!(!takes(&Matcher::default(), &RequestFacts::default()));
    }
}
