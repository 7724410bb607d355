//! The shipped Envoy configuration, with the changes that a test needs and no others.
//!
//! The file is read as YAML into a plain value, edited in place, and written as JSON, which Envoy
//! takes as well. What a test does not change is what users run.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};

use crate::config::Tools;

/// The header by which the filter tells Envoy where to send.
pub const STEERING_HEADER: &str = "x-gateway-destination-endpoint";
/// The header in which an upstream sees what the filter told Envoy; see [`Bootstrap::add_list_probe`].
pub const LIST_PROBE: &str = "x-list-probe";

/// An Envoy configuration in the making.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    pub page: Value,
}

impl Bootstrap {
    /// The shipped file with the built filter, an id for this Envoy, and no slow start.
    ///
    /// # Errors
    /// The file is missing, or is not of the form that the edits expect.
    pub fn shipped(tools: &Tools) -> anyhow::Result<Self> {
        let path = tools.standalone();
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let page = serde_saphyr::from_str(&text)
            .with_context(|| format!("{} is no YAML", path.display()))?;
        let mut bootstrap = Self { page };
        bootstrap.wasm()?["vm_config"]["code"]["local"]["filename"] = json!(tools.wasm);
        let mut plugin = bootstrap.plugin()?;
        // A test of minutes cannot wait for warm-up; the test of slow start sets it.
        for service in plugin["services"].as_array_mut().into_iter().flatten() {
            service["slow_start_ms"] = json!(0);
        }
        bootstrap.set_plugin(&plugin)?;
        Ok(bootstrap)
    }

    /// Envoy without the filter as Istio's users have it: least request, outlier detection, two
    /// retries on another host.
    ///
    /// # Errors
    /// The shipped file is missing or of another form.
    pub fn least_request(tools: &Tools) -> anyhow::Result<Self> {
        let mut bootstrap = Self::shipped(tools)?;
        bootstrap.remove_filter()?;
        let retry = json!({
            "retry_on": "connect-failure,refused-stream,unavailable,cancelled,reset,5xx",
            "num_retries": 2,
            "host_selection_retry_max_attempts": 5,
            "retry_host_predicate": [{
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"}
            }]
        });
        bootstrap.route()?["route"]["retry_policy"] = retry;
        let cluster = bootstrap.cluster("llm")?;
        cluster["load_balancing_policy"] = json!({"policies": [{"typed_extension_config": {
            "name": "envoy.load_balancing_policies.least_request",
            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest"}
        }}]});
        cluster["outlier_detection"] = json!({"consecutive_5xx": 5, "interval": "10s",
            "base_ejection_time": "30s", "max_ejection_percent": 50});
        Ok(bootstrap)
    }

    /// Names this Envoy, and says where it listens.
    ///
    /// # Errors
    /// The configuration has another form than the shipped one.
    pub fn place(&mut self, id: &str, listen: SocketAddr, admin: SocketAddr) -> anyhow::Result<()> {
        self.page["node"] = json!({"id": id, "cluster": "tidegate-tests"});
        self.page["admin"]["address"] = socket(admin);
        self.listener()?["address"] = socket(listen);
        Ok(())
    }

    /// The pool's members.
    ///
    /// # Errors
    /// There is no such cluster.
    pub fn set_endpoints(&mut self, cluster: &str, all: &[SocketAddr]) -> anyhow::Result<()> {
        let endpoints: Vec<Value> =
            all.iter().map(|one| json!({"endpoint": {"address": socket(*one)}})).collect();
        self.cluster(cluster)?["load_assignment"]["endpoints"] =
            json!([{"lb_endpoints": endpoints}]);
        Ok(())
    }

    /// # Errors
    /// There is no such cluster.
    pub fn set_control_plane(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        self.set_endpoints("tidegate_control_plane", &[address])
    }

    /// A second pool, a copy of `llm` under another name, for paths below `prefix`.
    ///
    /// # Errors
    /// The configuration has another form than the shipped one.
    pub fn add_pool(&mut self, name: &str, prefix: &str, all: &[SocketAddr]) -> anyhow::Result<()> {
        let mut cluster = self.cluster("llm")?.clone();
        cluster["name"] = json!(name);
        cluster["load_assignment"]["cluster_name"] = json!(name);
        let clusters = self.page["static_resources"]["clusters"].as_array_mut();
        clusters.context("no clusters")?.push(cluster);
        self.set_endpoints(name, all)?;
        let mut route = self.route()?.clone();
        route["match"] = json!({ "prefix": prefix });
        route["route"]["cluster"] = json!(name);
        let routes = self.hcm()?["route_config"]["virtual_hosts"][0]["routes"].as_array_mut();
        routes.context("no routes")?.insert(0, route);
        Ok(())
    }

    /// The filter's configuration.
    ///
    /// # Errors
    /// There is no filter, or its configuration is no JSON.
    pub fn plugin(&mut self) -> anyhow::Result<Value> {
        let text = self.wasm()?["configuration"]["value"].as_str().context("no configuration")?;
        serde_json::from_str(text).context("the filter's configuration is no JSON")
    }

    /// # Errors
    /// There is no filter.
    pub fn set_plugin(&mut self, plugin: &Value) -> anyhow::Result<()> {
        self.set_plugin_text(&serde_json::to_string_pretty(plugin)?)
    }

    /// Any text, for configurations that are wrong.
    ///
    /// # Errors
    /// There is no filter.
    pub fn set_plugin_text(&mut self, text: &str) -> anyhow::Result<()> {
        self.wasm()?["configuration"]["value"] = json!(text);
        Ok(())
    }

    /// Changes the filter's configuration in place.
    ///
    /// # Errors
    /// There is no filter, or its configuration is no JSON.
    pub fn edit_plugin(&mut self, edit: impl FnOnce(&mut Value)) -> anyhow::Result<()> {
        let mut plugin = self.plugin()?;
        edit(&mut plugin);
        self.set_plugin(&plugin)
    }

    /// Takes the filter out of the chain.
    ///
    /// # Errors
    /// The configuration has another form than the shipped one.
    pub fn remove_filter(&mut self) -> anyhow::Result<()> {
        let filters = self.hcm()?["http_filters"].as_array_mut().context("no filters")?;
        filters.retain(|filter| filter["name"] != "tidegate");
        Ok(())
    }

    /// Leaves the filter in the chain, switched off.
    ///
    /// # Errors
    /// There is no filter.
    pub fn disable_filter(&mut self) -> anyhow::Result<()> {
        self.filter()?["disabled"] = json!(true);
        Ok(())
    }

    /// An endpoint picker ahead of the filter: a filter that sets the steering header.
    ///
    /// # Errors
    /// The configuration has another form than the shipped one.
    pub fn add_earlier_picker(&mut self, list: &str) -> anyhow::Result<()> {
        let picker = json!({
            "name": "earlier_picker",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
                "mutations": {"request_mutations": [{"append": {
                    "header": {"key": STEERING_HEADER, "value": list},
                    "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"
                }}]}
            }
        });
        let filters = self.hcm()?["http_filters"].as_array_mut().context("no filters")?;
        filters.insert(0, picker);
        Ok(())
    }

    /// Shows the list that the filter wrote: a filter behind it copies the steering header to
    /// [`LIST_PROBE`], which reaches the upstream.
    ///
    /// # Errors
    /// The configuration has another form than the shipped one.
    pub fn add_list_probe(&mut self) -> anyhow::Result<()> {
        let probe = json!({
            "name": "list_probe",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
                "mutations": {"request_mutations": [{"append": {
                    "header": {"key": LIST_PROBE, "value": format!("%REQ({STEERING_HEADER})%")},
                    "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"
                }}]}
            }
        });
        let filters = self.hcm()?["http_filters"].as_array_mut().context("no filters")?;
        let router = filters.len().saturating_sub(1);
        filters.insert(router, probe);
        Ok(())
    }

    /// Moves the listener to a file that Envoy reads again when it is replaced; gives its content.
    ///
    /// # Errors
    /// The configuration has another form than the shipped one.
    pub fn take_listener(&mut self, file: &Path) -> anyhow::Result<Value> {
        let listener = self.listener()?.clone();
        if let Some(resources) = self.page["static_resources"].as_object_mut() {
            resources.remove("listeners");
        }
        let folder = file.parent().context("no folder")?;
        self.page["dynamic_resources"] = json!({"lds_config": {
            "resource_api_version": "V3",
            "path_config_source": {"path": file, "watched_directory": {"path": folder}}
        }});
        Ok(listener)
    }

    /// # Errors
    /// The configuration has another form than the shipped one.
    pub fn listener(&mut self) -> anyhow::Result<&mut Value> {
        self.page["static_resources"]["listeners"].get_mut(0).context("no listener")
    }

    /// The HTTP connection manager.
    ///
    /// # Errors
    /// The configuration has another form than the shipped one.
    pub fn hcm(&mut self) -> anyhow::Result<&mut Value> {
        let chains = &mut self.listener()?["filter_chains"];
        chains
            .get_mut(0)
            .and_then(|chain| chain["filters"].get_mut(0))
            .map(|filter| &mut filter["typed_config"])
            .context("no connection manager")
    }

    /// # Errors
    /// The configuration has another form than the shipped one.
    pub fn route(&mut self) -> anyhow::Result<&mut Value> {
        let hosts = &mut self.hcm()?["route_config"]["virtual_hosts"];
        hosts.get_mut(0).and_then(|host| host["routes"].get_mut(0)).context("no route")
    }

    /// # Errors
    /// There is no such cluster.
    pub fn cluster(&mut self, name: &str) -> anyhow::Result<&mut Value> {
        let clusters = self.page["static_resources"]["clusters"].as_array_mut();
        let mut clusters = clusters.context("no clusters")?.iter_mut();
        clusters
            .find(|cluster| cluster["name"] == name)
            .with_context(|| format!("no cluster {name}"))
    }

    /// The filter's entry in the chain.
    ///
    /// # Errors
    /// There is none.
    pub fn filter(&mut self) -> anyhow::Result<&mut Value> {
        let filters = self.hcm()?["http_filters"].as_array_mut().context("no filters")?;
        filters.iter_mut().find(|filter| filter["name"] == "tidegate").context("no filter")
    }

    /// The wasm plugin: root id, failure policy, VM, configuration.
    ///
    /// # Errors
    /// There is none.
    pub fn wasm(&mut self) -> anyhow::Result<&mut Value> {
        Ok(&mut self.filter()?["typed_config"]["config"])
    }
}

fn socket(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_find_their_places_in_the_shipped_file() {
        let tools = Tools::find();
        let mut bootstrap = Bootstrap::shipped(&tools).unwrap();
        let [a, b]: [SocketAddr; 2] =
            ["127.0.0.1:7".parse().unwrap(), "127.0.0.1:8".parse().unwrap()];
        bootstrap.place("one", a, b).unwrap();
        bootstrap.set_endpoints("llm", &[a, b]).unwrap();
        bootstrap.set_control_plane(b).unwrap();
        bootstrap.edit_plugin(|plugin| plugin["mode"] = json!("observe")).unwrap();
        bootstrap.add_pool("other", "/other/", &[a]).unwrap();
        bootstrap.disable_filter().unwrap();
        assert_eq!(bootstrap.plugin().unwrap()["mode"], "observe");
        assert_eq!(bootstrap.page["admin"]["address"], socket(b));
        let pool = bootstrap.cluster("llm").unwrap();
        let members = pool["load_assignment"]["endpoints"][0]["lb_endpoints"].as_array();
        assert_eq!(members.map(Vec::len), Some(2));
        assert!(Bootstrap::least_request(&tools).unwrap().filter().is_err());
    }
}
