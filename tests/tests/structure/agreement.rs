//! Manifests that name each other's objects mean the same ones.

use anyhow::{Context, Result, ensure};

use crate::support::{documents, find, string};

#[test]
fn names_and_ports_agree_across_files() -> Result<()> {
    let filter = documents("istio/filter.yaml")?;
    let plugin = find(&filter, "WasmPlugin")?;
    let steering = documents("istio/steering.yaml")?;
    let steering = find(&steering, "EnvoyFilter")?;
    let control_plane = documents("istio/control-plane.yaml")?;
    let service = find(&control_plane, "Service")?;
    let traffic = documents("istio/traffic.yaml")?;

    let host = format!(
        "{}.{}.svc.cluster.local",
        string(service, "/metadata/name")?,
        string(service, "/metadata/namespace")?
    );
    let port = &service["spec"]["ports"][0]["port"];
    let config = &plugin["spec"]["pluginConfig"];
    assert_eq!(config["control_plane"]["cluster"], format!("outbound|{port}||{host}"));
    assert_eq!(config["control_plane"]["authority"], host);

    let cluster = &steering["spec"]["configPatches"][0]["match"]["cluster"];
    assert_eq!(config["services"][0]["match"]["clusters"][0], cluster["service"]);
    assert_eq!(plugin["spec"]["match"][0]["ports"][0]["number"], cluster["portNumber"]);
    assert_eq!(find(&traffic, "DestinationRule")?["spec"]["host"], cluster["service"]);
    assert_eq!(find(&traffic, "VirtualService")?["spec"]["hosts"][0], cluster["service"]);
    let selected = &plugin["spec"]["selector"]["matchLabels"];
    assert_eq!(*selected, steering["spec"]["workloadSelector"]["labels"]);

    let reporter = documents("istio/gpu-reporter.yaml")?;
    let account = find(&reporter, "ServiceAccount")?;
    let principal = format!(
        "cluster.local/ns/{}/sa/{}",
        string(account, "/metadata/namespace")?,
        string(account, "/metadata/name")?
    );
    let access = documents("istio/control-plane-access.yaml")?;
    let rules = &find(&access, "AuthorizationPolicy")?["spec"]["rules"];
    assert_eq!(rules[0]["from"][0]["source"]["principals"][0], principal);
    let config = find(&reporter, "ConfigMap")?["data"]["reporter.yaml"].as_str().context("data")?;
    ensure!(config.contains(&format!("http://{host}:{port}\n")), "the reporter reports elsewhere");
    Ok(())
}
