//! What the EnvoyFilters carry is what Envoy takes: the patches are merged, as Istio merges them, into a
//! configuration like the one a sidecar has, and Envoy itself reads the result.

use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tidegate_tests::{Tools, skip};

use crate::support::{Scratch, accepted, documents, run, said};

/// As Istio merges: objects field by field, lists one after the other, and an entry of a map of typed
/// messages takes the place of the old one.
fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                match into.get_mut(key) {
                    Some(old)
                        if key != "envoy.extensions.upstreams.http.v3.HttpProtocolOptions" =>
                    {
                        merge(old, value);
                    }
                    _ => drop(into.insert(key.clone(), value.clone())),
                }
            }
        }
        (Value::Array(into), Value::Array(patch)) => into.extend(patch.iter().cloned()),
        (into, patch) => *into = patch.clone(),
    }
}

/// The value of each patch of a file, by what it applies to.
fn patch(file: &str, applies_to: &str) -> Result<Value> {
    for document in documents(file)? {
        for patch in document["spec"]["configPatches"].as_array().into_iter().flatten() {
            if patch["applyTo"] == applies_to {
                return Ok(patch["patch"]["value"].clone());
            }
        }
    }
    anyhow::bail!("{file} has no patch of {applies_to}")
}

/// A cluster as istiod makes it for a service of plain HTTP.
fn cluster() -> Value {
    let name = "outbound|8000||llm.llm.svc.cluster.local";
    let unlimited = json!({"max_connections": u32::MAX, "max_pending_requests": u32::MAX,
        "max_requests": u32::MAX, "max_retries": u32::MAX, "track_remaining": true});
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "10s",
        "lb_policy": "LEAST_REQUEST",
        "circuit_breakers": {"thresholds": [unlimited]},
        "common_lb_config": {},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"socket_address": {"address": "10.1.0.1", "port_value": 8000}}}},
        ]}]},
    })
}

fn connection_manager(cluster: &Value) -> Value {
    let route =
        json!({"match": {"prefix": "/"}, "route": {"cluster": cluster["name"], "timeout": "600s"}});
    json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "outbound_0.0.0.0_8000",
            "route_config": {"virtual_hosts": [{"name": "llm", "domains": ["*"], "routes": [route]}]},
            "http_filters": [{
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
            }],
        },
    })
}

fn bootstrap(cluster: &Value, manager: &Value) -> Value {
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": 0}});
    json!({
        "static_resources": {
            "listeners": [{
                "name": "0.0.0.0_8000",
                "address": address,
                "filter_chains": [{"filters": [manager]}],
            }],
            "clusters": [cluster],
        },
        "stats_config": {"stats_tags": [{"tag_name": "response_code", "regex": "(response_code=\\.=(.+?);)"}]},
    })
}

fn validate(envoy: &PathBuf, bootstrap: &Value) -> Result<Output> {
    let scratch = Scratch::new()?;
    let file = scratch.write("envoy.yaml", bootstrap)?;
    let mut command = Command::new(envoy);
    command.args(["--mode", "validate", "--log-level", "error", "--disable-hot-restart", "-c"]);
    run(command.arg(file))
}

#[test]
fn a_sidecar_takes_every_patch() -> Result<()> {
    let envoy = Tools::find().envoy;
    if !envoy.is_file() {
        skip!("Envoy is missing: cargo xtask setup");
    }
    let mut cluster = cluster();
    merge(&mut cluster, &patch("istio/steering.yaml", "CLUSTER")?);
    for file in ["istio/steering.yaml", "istio/gateway.yaml"] {
        let mut manager = connection_manager(&cluster);
        merge(&mut manager, &patch(file, "NETWORK_FILTER")?);
        let mut bootstrap = bootstrap(&cluster, &manager);
        merge(&mut bootstrap, &patch("istio/stats-tags.yaml", "BOOTSTRAP")?);
        let tags = bootstrap["stats_config"]["stats_tags"].as_array().context("tags")?;
        ensure!(tags.len() > 1, "the stats tags took the place of Istio's own");
        accepted(&validate(&envoy, &bootstrap)?).context(file)?;
    }
    Ok(())
}

#[test]
fn broken_patches_are_refused() -> Result<()> {
    let envoy = Tools::find().envoy;
    if !envoy.is_file() {
        skip!("Envoy is missing: cargo xtask setup");
    }
    let good = patch("istio/steering.yaml", "CLUSTER")?;
    let policy = "/load_balancing_policy/policies/0/typed_extension_config/typed_config";
    let options =
        "/typed_extension_protocol_options/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let breakages: [(&str, &str, &str, Value); 4] = [
        // What istiod adds when locality load balancing is on; traffic.yaml keeps it off.
        ("locality weights", "/common_lb_config", "locality_weighted_lb_config", json!({})),
        ("no fallback", policy, "fallback_policy", Value::Null),
        ("a typo in the source", policy, "override_host_source", json!([{"header": "x"}])),
        ("no codec at the end", options, "http_filters", json!([])),
    ];
    for (what, pointer, key, value) in breakages {
        let mut cluster = cluster();
        merge(&mut cluster, &good);
        let place = cluster.pointer_mut(pointer).and_then(Value::as_object_mut).context(pointer)?;
        if what == "no codec at the end" {
            let mutation = place[key][0].clone();
            place.insert(key.into(), json!([mutation]));
        } else {
            place.insert(key.into(), value);
        }
        let output = validate(&envoy, &bootstrap(&cluster, &connection_manager(&cluster)))?;
        ensure!(!output.status.success(), "{what} passes:\n{}", said(&output));
    }
    Ok(())
}

/// The shipped standalone configuration and the mesh say the same to Envoy about steering.
#[test]
fn mesh_and_standalone_steer_alike() -> Result<()> {
    let standalone = documents("istio/standalone/envoy.yaml")?;
    let standalone = standalone.first().context("a document")?;
    let patched = patch("istio/steering.yaml", "CLUSTER")?;
    let cluster = &standalone["static_resources"]["clusters"][0];
    let of = |cluster: &Value| {
        let policy = "/load_balancing_policy/policies/0/typed_extension_config/typed_config";
        cluster.pointer(policy).and_then(|it| it.get("override_host_sources")).cloned()
    };
    assert_eq!(of(cluster), of(&patched));
    assert!(of(cluster).is_some());
    let options = "typed_extension_protocol_options";
    assert_eq!(cluster[options], patched[options]);

    let manager = &standalone["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0];
    let early = "early_header_mutation_extensions";
    for file in ["istio/steering.yaml", "istio/gateway.yaml"] {
        let patch = patch(file, "NETWORK_FILTER")?;
        assert_eq!(manager["typed_config"][early], patch["typed_config"][early], "{file}");
    }
    let tags = patch("istio/stats-tags.yaml", "BOOTSTRAP")?;
    assert_eq!(standalone["stats_config"]["stats_tags"], tags["stats_config"]["stats_tags"]);
    Ok(())
}
